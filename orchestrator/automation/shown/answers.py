"""The answer of a rule that is only asked: as JSON, and as facts."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from pydantic import Field

from orchestrator.automation import criteria
from orchestrator.automation.asking import Answer
from orchestrator.automation.recording import Recorded
from orchestrator.core.shown.documents import Shown
from orchestrator.core.shown.values import Fact, Json, said


class LeafShown(Shown):
    """One criterion, what it found, and its answer."""

    where: str = Field(description="Its place in the criteria.")
    path: str
    operator: str
    value: Any = Field(description="What it found; null if there is nothing.")
    pattern: Any = Field(description="What it compares with; of an expression, its value.")
    answer: bool
    note: str


class AnswerShown(Shown):
    """The answer of a rule, as it is now, to an event or a payload."""

    rule: str
    revision: int
    is_enabled: bool = Field(description="false: no event asks it at the moment.")
    matched: bool
    reason: str = Field(description="Why the criteria gave no answer, as a code.")
    message: str
    criteria: list[LeafShown]
    action_ref: str
    parameters: dict[str, Any] | None = Field(
        description="What the action would be given; null if it would not run."
    )
    problems: list[str] = Field(description="Why its parameters have no value.")


class EventAccepted(Shown):
    """An event that was recorded."""

    id: UUID
    is_new: bool = Field(description="false: an earlier report had the same key.")


def shown(answer: Answer) -> AnswerShown:
    """Convert an answer."""
    rule = answer.rule
    return AnswerShown(
        rule=rule.ref,
        revision=rule.current.number,
        is_enabled=rule.is_enabled,
        action_ref=rule.current.action_ref,
        parameters=None if answer.parameters is None else dict(answer.parameters),
        problems=list(answer.problems),
        **criteria.shown(answer.explanation),
    )


def accepted(recorded: Recorded) -> EventAccepted:
    """Convert what became of a report."""
    return EventAccepted(id=recorded.event_id, is_new=recorded.is_new)


def situation(answer: Answer) -> list[Fact]:
    """The answer without its leaves."""
    outcome = answer.explanation.outcome
    matched = f"no answer ({outcome.reason})" if outcome.broken else _yes(outcome.matched)
    return said(
        [
            ("Rule", f"{answer.rule.ref} (revision {answer.rule.current.number})"),
            ("Enabled", _yes(answer.rule.is_enabled)),
            ("Matches", matched),
            ("Message", outcome.message),
            ("Action", answer.rule.current.action_ref),
            ("Parameters", None if answer.parameters is None else Json(dict(answer.parameters))),
            ("Problems", "; ".join(answer.problems)),
        ]
    )


def _yes(answer: bool) -> str:
    return "yes" if answer else "no"
