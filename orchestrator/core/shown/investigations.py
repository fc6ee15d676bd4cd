"""An investigation: as JSON, and as facts."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Self, TypeVar
from uuid import UUID

from pydantic import BaseModel, Field, model_validator

from orchestrator.core import words
from orchestrator.core.models import DLQEntry
from orchestrator.core.models.dead_letters import REASON_KINDS, RESOLUTION_KINDS
from orchestrator.core.shown.values import At, Fact, Shown, State, said

NAMES = {"task": "task_uuid", "execution": "execution_id"}
"""What the API calls the ids of some kinds of subjects, beside `subject_id`."""


Described = TypeVar("Described", bound=Any)


def named_by_kind(described: Described) -> Described:
    """Say the subject's id by its kind's own name, too: clients of tasks know `task_uuid`."""
    for kind, name in NAMES.items():
        if described.subject_kind == kind:
            setattr(described, name, described.subject_id)
    return described


class Note(BaseModel):
    """What somebody found out."""

    at: datetime
    by: str
    text: str


class DLQSummary(Shown):
    """An entry as listings show it."""

    dlq_entry_uuid: UUID
    subject_kind: str = Field(description="What it is about, such as `task`; empty: a letter.")
    subject_id: UUID | None
    subject_name: str = Field(description="Its action, or its template.")
    task_uuid: UUID | None = Field(None, description="`subject_id`, if it is about a task.")
    execution_id: UUID | None = Field(
        None, description="`subject_id`, if it is about an execution."
    )
    attempt: int | None
    original_state: str = Field(description="State or status of its subject, then.")
    dlq_reason: DLQEntry.Reason
    detail: str
    dlq_timestamp: datetime = Field(description="When it was opened.")
    opened_by: str
    occurrences: int = Field(
        description="How many identical letters that name no attempt came while it was pending."
    )
    last_seen_at: datetime | None = Field(description="When the last of these was drained.")
    resolution_status: DLQEntry.Resolution
    resolved_at: datetime | None
    resolved_by: str
    original_exchange: str
    original_queue: str
    original_routing_key: str

    @model_validator(mode="after")
    def _name_the_subject(self) -> Self:
        return named_by_kind(self)


class DLQDetail(DLQSummary):
    """An entry with all that was kept."""

    task_snapshot: Any = Field(description="Its subject when it was opened; secrets redacted.")
    notes: list[Note]
    metadata: dict[str, Any]
    headers: Any
    x_death: Any = Field(description="The broker's own account of a dead letter.")
    raw_body: str | None = Field(description="Base64; kept when it could not be read.")


class DLQReasonStats(Shown):
    """How the investigations of one reason stand."""

    dlq_reason: str
    total_entries: int
    pending: int
    manually_resolved: int
    permanent_failures: int
    cancelled: int
    oldest_entry: datetime
    newest_entry: datetime
    avg_resolution_time_minutes: float | None = Field(description="Of those that are closed.")


class Investigation(Shown):
    """A pending entry, and how urgent it is."""

    dlq_entry_uuid: UUID
    subject_kind: str
    subject_id: UUID | None
    subject_name: str
    task_uuid: UUID | None = None
    execution_id: UUID | None = None
    dlq_reason: str
    original_state: str
    detail: str
    dlq_timestamp: datetime
    minutes_in_dlq: float
    priority_score: float = Field(
        description="The base of its reason, and a point for each minute, at most 10,000."
    )

    @model_validator(mode="after")
    def _name_the_subject(self) -> Self:
        return named_by_kind(self)


def whole(entry: DLQEntry) -> DLQDetail:
    """An entry with all that was kept."""
    body = None if entry.raw_body is None else base64.b64encode(entry.raw_body).decode()
    return DLQDetail.model_construct(
        **dict(DLQSummary.model_validate(entry)),
        task_snapshot=entry.snapshot,
        notes=[Note.model_validate(note) for note in entry.notes],
        metadata=entry.metadata,
        headers=entry.headers,
        x_death=entry.x_death,
        raw_body=body,
    )


def situation(entry: DLQEntry, now: datetime) -> list[Fact]:
    """What happened, and who looked into it. Its subject is a link, which each face makes."""
    seen = None
    if entry.occurrences > 1 and entry.last_seen_at:
        seen = At(entry.last_seen_at, f"{entry.occurrences:,} in all, this was the last one")
    return said(
        [
            ("Entry", str(entry.dlq_entry_uuid)),
            ("Reason", State(entry.dlq_reason, REASON_KINDS)),
            ("Resolution", State(entry.resolution_status, RESOLUTION_KINDS)),
            ("Detail", entry.detail),
            ("Attempt", entry.attempt),
            ("It was", State(entry.original_state) if entry.original_state else None),
            ("Opened", _by(entry.opened_by, entry.dlq_timestamp, now)),
            ("Last seen", seen),
            ("Closed", _by(entry.resolved_by, entry.resolved_at, now)),
            ("From queue", entry.original_queue),
            ("From exchange", entry.original_exchange),
            ("Routing key", entry.original_routing_key),
            ("Fingerprint", entry.fingerprint),
        ]
    )


def _by(who: str, at: datetime | None, now: datetime) -> At | None:
    if at is None:
        return None
    return At(at, f"{words.span((now - at).total_seconds())} ago by {who or '?'}")


DEATH = ("Count", "Reason", "Queue", "Exchange", "Routing keys", "First time")


def deaths(x_death: Any) -> Iterator[tuple[Any, ...]]:
    """RabbitMQ's `x-death`, newest death first: a row for each queue and reason, see `DEATH`.

    Headers come from outside: anything may be in them.
    """
    for death in x_death if isinstance(x_death, list) else [x_death]:
        if not isinstance(death, dict):
            yield ("?", death, "", "", "", "")
            continue
        keys = death.get("routing-keys")
        yield (
            *(death.get(name, "") for name in ("count", "reason", "queue", "exchange")),
            ", ".join(map(str, keys)) if isinstance(keys, list) else keys or "",
            _time(death.get("time")),
        )


def _time(value: Any) -> Any:
    """AMQP's timestamp: seconds since 1970, or what JSON made of the client's datetime."""
    try:
        if isinstance(value, int):
            return datetime.fromtimestamp(value, UTC)
        at = datetime.fromisoformat(value)
        return at if at.tzinfo else at.replace(tzinfo=UTC)
    except (OverflowError, OSError, TypeError, ValueError):
        return "" if value is None else value
