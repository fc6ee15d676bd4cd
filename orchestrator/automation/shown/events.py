"""An event: as JSON, and as facts."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import Field

from orchestrator.automation.models import Event
from orchestrator.core import authority
from orchestrator.core.authority import Principal
from orchestrator.core.redaction import redacted
from orchestrator.core.shown.documents import Shown
from orchestrator.core.shown.values import At, Fact, Link, Search, said


class EventShown(Shown):
    """An event, as it was reported."""

    id: UUID
    type: str = Field(description="The type of its trigger.")
    trigger_id: int
    key: str | None = Field(description="Reports with the same key are the same event.")
    payload: Any = Field(description="`***` without the permission `payloads.read`.")
    occurred_at: datetime | None = Field(description="As it was reported.")
    received_at: datetime
    evaluated_at: datetime | None = Field(description="When the rules were asked.")
    matched: int | None = Field(description="How many rules matched.")
    problem: str = Field(
        description="Why no rule was asked, if so; in detail with the permission `payloads.read`."
    )
    source: str
    sent_by: str
    correlation_id: str | None
    depth: int = Field(description="How many rules have led to it.")
    cause_execution_id: UUID | None


def shown(row: Event, *, seen_by: Principal) -> EventShown:
    """Convert an event, loaded with its trigger's type."""
    names = (
        "id", "trigger_id", "occurred_at", "received_at", "evaluated_at", "matched", "source",
        "sent_by", "correlation_id", "depth", "cause_execution_id",
    )  # fmt: skip
    values = {name: getattr(row, name) for name in names}
    return EventShown(
        type=row.type_ref,
        key=row.dedup_key,
        payload=payload(row, seen_by=seen_by),
        problem=_problem(row, seen_by),
        **values,
    )


def payload(row: Event, *, seen_by: Principal) -> Any:
    """Its payload, without the values that its type's schema, or a name, marks as secret."""
    masked = redacted(row.payload, schema=row.trigger.type.payload_schema)
    return authority.payload(masked, of=row.place, seen_by=seen_by)


def _problem(row: Event, seen_by: Principal) -> str:
    """The reason why no rule was asked: in detail it quotes the payload."""
    if row.problem == row.why_not_asked or authority.may(seen_by, authority.PAYLOADS, row.place):
        return row.problem
    return row.why_not_asked


def situation(row: Event, *, seen_by: Principal) -> list[Fact]:
    """The facts of an event: what it is, where it comes from, and what became of it."""
    return said(
        [
            ("Event", str(row.pk)),
            ("Trigger", Link(row.trigger, row.type_ref)),
            ("Key", row.dedup_key),
            ("Source", row.source),
            ("Sent by", row.sent_by),
            ("Problem", _problem(row, seen_by)),
            ("Rules that matched", row.matched),
            ("Depth", row.depth),
            ("About execution", str(row.cause_execution_id) if row.cause_execution_id else None),
            ("Correlation id", Search(Event, row.correlation_id) if row.correlation_id else None),
            ("Occurred", At(row.occurred_at) if row.occurred_at else None),
            ("Received", At(row.received_at)),
            ("Rules asked", At(row.evaluated_at) if row.evaluated_at else None),
        ]
    )
