"""An enforcement: as JSON, and as facts."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import Field

from orchestrator.automation.models import Enforcement
from orchestrator.automation.shown import secrets
from orchestrator.automation.states import ENFORCEMENTS, EnforcementState
from orchestrator.core import authority, words
from orchestrator.core.authority import Principal
from orchestrator.core.models import Execution
from orchestrator.core.shown.documents import Shown
from orchestrator.core.shown.values import At, Fact, Link, Prose, State, said


class EnforcementShown(Shown):
    """One rule's answer to one event."""

    id: UUID
    rule: str
    revision: int = Field(description="What the rule said when the event was evaluated.")
    event_id: UUID
    state: EnforcementState
    execution_id: UUID | None = Field(description="It may be removed before the enforcement.")
    reason: str = Field(description="Why there is no execution.")
    problem: dict[str, Any] | None = Field(
        description="What exactly was refused; null without `payloads.read`."
    )
    created_at: datetime
    ended_at: datetime | None


def shown(row: Enforcement, *, seen_by: Principal) -> EnforcementShown:
    """Convert an enforcement, loaded with its rule and revision."""
    names = (
        "id", "event_id", "state", "execution_id", "reason", "created_at", "ended_at",
    )  # fmt: skip
    values = {name: getattr(row, name) for name in names}
    return EnforcementShown(
        rule=row.rule.ref,
        revision=row.revision.number,
        problem=_problem(row, seen_by),
        **values,
    )


def _problem(row: Enforcement, seen_by: Principal) -> dict[str, Any] | None:
    """The exact problem of a refusal: it quotes parameters, and so the event's payload."""
    if row.problem is None or authority.may(seen_by, authority.PAYLOADS, row.place):
        return row.problem
    return None


def situation(row: Enforcement, now: datetime, *, seen_by: Principal) -> list[Fact]:
    """Its state, its cause and its outcome."""
    took = words.span(((row.ended_at or now) - row.created_at).total_seconds())
    return said(
        [
            ("Enforcement", str(row.pk)),
            ("State", State(row.state)),
            ("Rule", Link(row.rule, row.rule.ref, f"({row.revision})")),
            ("Event", Link(row.event, str(row.event_id))),
            ("Execution", _execution(row)),
            ("Reason", row.reason),
            ("Problem", _messages(row, seen_by)),
            ("Moved on by", Prose(ENFORCEMENTS.who_moves_it_on[EnforcementState(row.state)])),
            ("Created", At(row.created_at)),
            ("Took" if row.ended_at else "Age", took),
        ]
    )


def _execution(row: Enforcement) -> Link | str | None:
    if row.execution_id is None:
        return None
    present = Execution.objects.filter(pk=row.execution_id).only("pk").first()
    return Link(present, str(row.execution_id)) if present else f"{row.execution_id} (removed)"


def why(row: Enforcement, *, seen_by: Principal) -> str:
    """The reason why there is no execution, in a line; empty if there is one, or may be one."""
    return ": ".join(part for part in (row.reason, _messages(row, seen_by)) if part)


def _messages(row: Enforcement, seen_by: Principal) -> str:
    return "; ".join((_problem(row, seen_by) or {}).get("messages", ()))


def of_execution(execution: Execution) -> list[Fact]:
    """The rule and the event that an execution was run for, for its page."""
    if not secrets.may_be_of_a_rule(execution):
        return []
    rows = Enforcement.objects.filter(execution=execution).select_related("rule", "event")
    facts: list[Fact] = []
    for row in rows:
        facts.append(("Rule", Link(row.rule, row.rule.ref)))
        facts.append(("Event", Link(row.event, str(row.event_id))))
    return facts
