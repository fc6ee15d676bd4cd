"""Access: what one may do, who else may what, keys by their names, and the audit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from django.http import HttpRequest
from django.urls import reverse

from orchestrator.access import grants, identities
from orchestrator.access.audit.models import DECISION_KINDS, AuditEvent, AuditEventQuerySet
from orchestrator.access.grants import of_json
from orchestrator.access.keys import shown as shown_keys
from orchestrator.access.models import Identity, Key
from orchestrator.console import access, draw, paging
from orchestrator.console.access import Context
from orchestrator.console.look import Look
from orchestrator.core import cursors
from orchestrator.core.frame import ROLES
from orchestrator.core.shown.values import Prose
from orchestrator.core.words import Kind

KEYS_MAX = 500
DECISIONS = ("allowed", "denied")


class Tab(NamedTuple):
    """One of the pages of access."""

    name: str
    title: str
    needs: str

    @property
    def url(self) -> str:
        return reverse(f"console:{self.name}")


TABS = (
    Tab("access", "Permissions", ""),
    Tab("identities", "Identities", "access.manage"),
    Tab("keys", "Keys", "keys.read"),
    Tab("audit", "Audit", "audit.read"),
)


@dataclass(frozen=True)
class Permitted:
    """A permission, who has it by their role, and whether the user has it."""

    name: str
    text: Any
    roles: Sequence[bool]
    """Of each role in the order of `ROLES`."""
    mine: bool


@dataclass(frozen=True)
class IdentityRow:
    """An identity, and what it may do."""

    identity: Identity

    @property
    def state(self) -> str:
        return identities.state(self.identity)

    @property
    def kind(self) -> Kind:
        return identities.KINDS.get(self.state, Kind.PLAIN)

    @property
    def grants(self) -> list[str]:
        given = [
            str(of_json({"gives": each.gives, "scope": each.scope}))
            for each in self.identity.grants.all()
        ]
        return [*(["superuser"] if self.identity.is_superuser else []), *given]


@dataclass(frozen=True)
class KeyRow:
    """A key by its name; its value is nowhere."""

    key: Key

    @property
    def state(self) -> str:
        return shown_keys.state(self.key)

    @property
    def kind(self) -> Kind:
        return shown_keys.KINDS.get(self.state, Kind.PLAIN)

    @property
    def whom(self) -> str:
        return shown_keys.whom(self.key)


def _around(look: Look, name: str, title: str) -> Context:
    tabs = [tab for tab in TABS if not tab.needs or look.may(tab.needs)]
    return {"title": title, "here": "access", "tabs": tabs, "tab": name}


@access.page("permissions", needs="", topics="clock")
def show(look: Look, request: HttpRequest) -> Context:
    """Every permission: which roles have it, and whether one has it oneself."""
    known = sorted(grants.permissions().values(), key=lambda each: each.name)
    return _around(look, "access", "Access") | {
        "who": look.user.actor,
        "roles": ROLES,
        "permissions": [
            Permitted(
                each.name,
                draw.value(Prose(each.text)),
                [each.name in grants.permissions_of(role) for role in ROLES],
                look.may(each.name),
            )
            for each in known
        ],
    }


@access.page("identities", needs="access.manage", topics="clock")
def show_identities(look: Look, request: HttpRequest) -> Context:
    """People and service accounts, the newest first, with their grants."""
    rows = Identity.objects.select_related("user").prefetch_related("grants")
    listed = paging.newest(request, rows, key=cursors.whole_number)
    return _around(look, "identities", "Identities") | {
        "listed": listed,
        "first": listed.first,
        "rows": [IdentityRow(each) for each in listed.rows],
    }


@access.page("keys", needs="keys.read", topics="clock")
def show_keys(look: Look, request: HttpRequest) -> Context:
    """The keys within reach and one's own, by name. No value is loaded."""
    keys = Key.objects.visible_to(look.user).defer("content", "data_key")
    return _around(look, "keys", "Keys") | {
        "rows": [KeyRow(each) for each in keys[:KEYS_MAX]],
        "keys_max": KEYS_MAX,
    }


@access.page("audit", needs="audit.read", topics="clock")
def show_audit(look: Look, request: HttpRequest) -> Context:
    """The audit: who did what, and who was refused what: the newest that match the filters."""
    query = paging.query_of(request)
    rows, among = _audited(look, query)
    listed = paging.newest(request, rows, key=cursors.whole_number, among=among)
    return _around(look, "audit", "Audit") | {
        "listed": listed,
        "first": listed.first,
        "rows": [
            {
                "event": each,
                "kind": DECISION_KINDS.get(each.decision, Kind.PLAIN),
                "about": draw.printable(each.about),
                "reason": draw.printable(each.reason),
            }
            for each in listed.rows
        ],
        "query": query,
        "is_filtered": paging.is_filtered(query),
        "decisions": DECISIONS,
        "ages": paging.AGES,
    }


def _audited(
    look: Look, query: Mapping[str, str]
) -> tuple[AuditEventQuerySet, AuditEventQuerySet | None]:
    """Those that match. An actor or an object leads to few rows; the rest is looked for among the
    newest."""
    rows = AuditEvent.objects.all()
    for name in ("actor", "permission", "decision", "object_id"):
        if wanted := query.get(name):
            rows = rows.filter(**{name: wanted})
    age = paging.AGES.get(query.get("within", ""))
    if age is not None:
        rows = rows.since(look.now - age)
    has_index = bool(query.get("actor") or query.get("object_id"))
    is_slow = bool(age or query.get("permission") or query.get("decision"))
    return rows, AuditEvent.objects.all() if is_slow and not has_index else None
