"""The seam for what callers may do. The class that the setting `AUTHORIZER` names decides
(`orchestrator.access`); without one, nobody may do anything.

authority.require(principal, "executions.cancel", execution.place)   # raises PermissionMissing
Execution.objects.visible_to(principal)                              # the rows for a listing
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

from django.conf import settings
from django.db.models import Q
from django.utils.module_loading import import_string

from orchestrator.core.errors import Forbidden
from orchestrator.core.frame import INSTALLATION, NAMESPACES, PACKS, WORKERS
from orchestrator.core.redaction import REDACTED

if TYPE_CHECKING:
    from django.http import HttpRequest

PAYLOADS = "payloads.read"
DANGEROUS = "actions.run_any_command"

NOTHING = Q(pk__in=[])

ENDS = {PACKS: ".", NAMESPACES: "/"}
"""The character that ends the pack in `pack.action`, and the namespace in `namespace/name`."""


class PermissionMissing(Forbidden):
    """The caller lacks a permission."""

    def __init__(self, permission: str, why: str = "") -> None:
        super().__init__(f"{why or 'This'} needs the permission {permission}")
        self.permission = permission


# --- parts of an installation --------------------------------------------------------------------


@dataclass(frozen=True)
class Place:
    """The place that a row belongs to: a pack, a namespace of templates, or a worker with its
    labels."""

    about: str
    name: str = ""
    labels: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of_ref(cls, about: str, ref: str) -> Place:
        """The pack of `pack.action`, or the namespace of `namespace/name/version`."""
        return cls(about, ref.partition(ENDS[about])[0])


WHOLE = Place(INSTALLATION)
"""The place of what belongs to no pack, namespace or worker: only a grant without a scope reaches
it."""


@dataclass(frozen=True)
class Scope:
    """The part of the installation in which a grant holds; an empty one is all of it."""

    packs: tuple[str, ...] = ()
    """Names, in which `*` stands for any characters."""
    namespaces: tuple[str, ...] = ()
    """Likewise, of templates."""
    labels: tuple[tuple[str, str], ...] = ()
    """Labels that a worker has, all of them."""

    @cached_property
    def is_everything(self) -> bool:
        return not (self.packs or self.namespaces or self.labels)

    def names(self, about: str) -> tuple[str, ...]:
        """The names that it lists of packs, or of namespaces."""
        return {PACKS: self.packs, NAMESPACES: self.namespaces}.get(about, ())

    def covers(self, place: Place) -> bool:
        """Return True if the place is in it."""
        if self.is_everything:
            return True
        if place.about == WORKERS:
            wanted = self.labels
            return bool(wanted) and all(place.labels.get(key) == value for key, value in wanted)
        names = self.names(place.about)
        return bool(names) and _pattern(names).fullmatch(place.name) is not None


@dataclass(frozen=True)
class Reach:
    """The places where a permission holds: in a scope of each layer, such as the grants of a
    token's owner and those of the token itself."""

    layers: tuple[tuple[Scope, ...], ...]

    def __bool__(self) -> bool:
        return all(self.layers)

    @cached_property
    def is_everywhere(self) -> bool:
        return all(any(scope.is_everything for scope in layer) for layer in self.layers)

    def covers(self, place: Place) -> bool:
        """Return True if the permission holds there."""
        return all(any(scope.covers(place) for scope in layer) for layer in self.layers)

    def condition(self, about: str, column: str, *, is_ref: bool = False) -> Q:
        """The condition for rows whose column is a name within reach, or a ref that begins with
        one."""
        wanted = Q()
        for layer in self.layers:
            if any(scope.is_everything for scope in layer):
                continue
            names = tuple(name for scope in layer for name in scope.names(about))
            end = re.escape(ENDS[about]) if is_ref else "$"
            regex = f"^{_pattern(names).pattern}{end}"
            wanted &= Q(**{f"{column}__regex": regex}) if names else NOTHING
        return wanted


NOWHERE = Reach(((),))
EVERYWHERE = Reach(((Scope(),),))


@cache
def _pattern(names: Sequence[str]) -> re.Pattern[str]:
    """Matches each of these names; as both databases read it, too."""
    return re.compile(
        "(?:" + "|".join(re.escape(name).replace(r"\*", "[a-z0-9_-]*") for name in names) + ")"
    )


# --- who asks, and what is decided ---------------------------------------------------------------


@dataclass(frozen=True)
class Asker:
    """Whoever is behind a request."""

    name: str
    key_owner: int = 0
    """As `Principal.key_owner`; 0 says less: then the name counts."""


class Principal(Protocol):
    """A person, a service, an execution, or whoever is at the terminal, for one request."""

    @property
    def actor(self) -> str:
        """The name in histories."""

    @property
    def key_owner(self) -> int:
        """The number whose idempotency keys these are; 0 is the installation itself."""

    def names_at(self, place: Place) -> frozenset[str]:
        """The other names that it is addressed by at a place: `user:ada`, `service:deploy`,
        `action:chat.relay`, and `role:operator` where it has that role."""

    @property
    def execution_id(self) -> UUID | None:
        """The execution that asks by a token of its own; None for all others."""

    def reach(self, permission: str) -> Reach:
        """The places where its grants give a permission. Ask `authorize`, which decides."""


@dataclass(frozen=True)
class Decision:
    """The answer to whether a caller may do something."""

    principal: Principal
    permission: str
    place: Place | None
    """None: somewhere, as for a listing."""
    is_allowed: bool
    reach: Reach
    """The places where it is allowed."""


class Authorizer(Protocol):
    """The methods that the class that `AUTHORIZER` names has to have."""

    def authorize(self, principal: Principal, permission: str, place: Place | None) -> Decision:
        """Decide."""

    def of_request(self, request: HttpRequest) -> Principal:
        """The person whose session a request belongs to, with the grants of now."""

    def at_terminal(self) -> Principal:
        """Whoever runs a command. Raises MusterError."""

    def required(self, decision: Decision) -> None:
        """Take note of a decision that a caller was held to."""

    def refused(self, principal: Principal, permission: str, about: str, why: str) -> None:
        """Take note that a caller with the permission was refused all the same."""

    def watched(self, about: str) -> AbstractContextManager[None]:
        """Note what is decided while a command runs; `about` says what it was asked to act on."""


class Nobody:
    """A caller without any grant, and the authorizer of an installation that names none."""

    actor = ""
    key_owner = 0
    execution_id: UUID | None = None

    def names_at(self, place: Place) -> frozenset[str]:
        return frozenset()

    def reach(self, permission: str) -> Reach:
        return NOWHERE

    def authorize(self, principal: Principal, permission: str, place: Place | None) -> Decision:
        return Decision(principal, permission, place, False, NOWHERE)

    def of_request(self, request: HttpRequest) -> Principal:
        return self

    def at_terminal(self) -> Principal:
        return self

    def required(self, decision: Decision) -> None:
        """Keep nothing."""

    def refused(self, principal: Principal, permission: str, about: str, why: str) -> None:
        """Keep nothing."""

    def watched(self, about: str) -> AbstractContextManager[None]:
        return nullcontext()


@cache
def _made(path: str) -> Authorizer:
    made: Authorizer = import_string(path)() if path else Nobody()
    return made


def _authorizer() -> Authorizer:
    return _made(getattr(settings, "AUTHORIZER", ""))


def authorize(principal: Principal, permission: str, place: Place | None = None) -> Decision:
    """Decide whether the permission holds at this place; without one, whether it holds anywhere."""
    return _authorizer().authorize(principal, permission, place)


def may(principal: Principal, permission: str, place: Place | None = None) -> bool:
    """Return True if it is allowed."""
    return authorize(principal, permission, place).is_allowed


def require(principal: Principal, permission: str, place: Place | None = None) -> None:
    """Raise PermissionMissing unless it is allowed."""
    decision = authorize(principal, permission, place)
    _authorizer().required(decision)
    if not decision.is_allowed:
        raise PermissionMissing(permission)


def note_refusal(principal: Principal, permission: str, *, about: str, why: str) -> None:
    """Let the authorizer note that a caller with the permission was refused all the same."""
    _authorizer().refused(principal, permission, about, why)


def reach(principal: Principal, permission: str) -> Reach:
    """The places where the permission holds, for the condition of a listing."""
    decision = authorize(principal, permission)
    return decision.reach if decision.is_allowed else NOWHERE


def payload(value: Any, *, of: Place, seen_by: Principal) -> Any:
    """A value that went into the work of this place, or came out of it: `***` without
    `payloads.read`."""
    return value if value is None or may(seen_by, PAYLOADS, of) else REDACTED


def of_request(request: HttpRequest) -> Principal:
    """The person whose session a request belongs to; asked for once in a request."""
    known: Principal | None = getattr(request, "principal", None)
    if known is None:
        known = _authorizer().of_request(request)
        request.principal = known  # type: ignore[attr-defined]
    return known


def at_terminal() -> Principal:
    """Whoever runs a command. Raises MusterError if the installation does not know them."""
    return _authorizer().at_terminal()


def watched(about: str) -> AbstractContextManager[None]:
    """Let the authorizer note what is decided while a command runs."""
    return _authorizer().watched(about)
