"""Enforcements: the answers of rules to events, on pages of their own and of rules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from uuid import UUID

from django.http import HttpRequest

from orchestrator.automation import listing
from orchestrator.automation.models import Enforcement
from orchestrator.automation.models.enforcements import EnforcementQuerySet
from orchestrator.automation.shown import enforcements as shown
from orchestrator.automation.states import EnforcementState
from orchestrator.console import access, addresses, draw, paging
from orchestrator.console.access import Context
from orchestrator.console.look import Look
from orchestrator.core.models import Execution
from orchestrator.core.shown import executions as shown_executions
from orchestrator.core.words import Kind, kind_of

BULKY = (
    "event__payload", "execution__parameters", "execution__result", "execution__worker_selector",
    "execution__retry_policy",
)  # fmt: skip


@dataclass(frozen=True)
class Row:
    """An enforcement as tables show it."""

    enforcement: Enforcement
    execution: Execution | None
    """None if there is none any more, or if the user may not see it."""
    why: str
    """The reason why there is no execution, or the message of the one that failed."""
    may_open_event: bool

    @property
    def kind(self) -> Kind:
        return kind_of(self.enforcement.state)

    @property
    def execution_kind(self) -> Kind:
        return kind_of(self.execution.status) if self.execution else Kind.PLAIN


def loaded(rows: EnforcementQuerySet) -> EnforcementQuerySet:
    """With all that a row shows, in the same query."""
    return rows.select_related("rule", "event", "execution").defer(*BULKY)


def rows_of(
    look: Look, enforcements: Iterable[Enforcement], messages: Mapping[UUID, str] | None = None
) -> list[Row]:
    """Rows of enforcements, loaded with their executions."""
    known = messages or {}
    return [
        Row(
            each,
            execution_of(look, each),
            draw.printable(
                shown.why(each, seen_by=look.user) or known.get(each.execution_id or each.pk, "")
            ),
            addresses.may_open(each.event, look.user),
        )
        for each in enforcements
    ]


def execution_of(look: Look, row: Enforcement) -> Execution | None:
    """The execution of an enforcement, if it is kept and the user may see it."""
    execution: Execution | None = row.execution if row.execution_id else None
    if execution is None or not look.may("executions.read", execution.place):
        return None
    return execution


@access.page("enforcements", needs="rules.read", topics="enforcement,execution,clock")
def show_list(look: Look, request: HttpRequest) -> Context:
    """The newest that match the filters of the address."""
    query = paging.query_of(request)
    visible = loaded(Enforcement.objects.visible_to(look.user))
    listed = paging.newest(request, *_matching(visible, query))
    seen = [each for row in listed.rows if (each := execution_of(look, row))]
    messages = shown_executions.messages(seen, seen_by=look.user)
    return {
        "title": "Enforcements",
        "here": "rules",
        "listed": listed,
        "first": listed.first,
        "rows": rows_of(look, listed.rows, messages),
        "query": query,
        "is_filtered": paging.is_filtered(query),
        "states": [state.value for state in EnforcementState],
    }


def _matching(
    rows: EnforcementQuerySet, query: Mapping[str, str]
) -> tuple[EnforcementQuerySet, EnforcementQuerySet | None]:
    """Those that the filters mean; open ones have an index. What a filter does not know, nothing
    matches."""
    state = query.get("state", "")
    is_open = state == EnforcementState.CREATED
    return listing.enforcements(
        rows,
        rule=query.get("rule"),
        state=[state] if state and not is_open else None,
        open=True if is_open else None,
    )
