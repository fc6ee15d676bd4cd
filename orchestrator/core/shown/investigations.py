"""An investigation: as JSON, and as facts."""

from __future__ import annotations

import base64
from collections.abc import Callable, Collection, Iterator
from datetime import UTC, datetime
from typing import Any, Self, TypeVar
from uuid import UUID

from pydantic import BaseModel, Field, model_validator

from orchestrator.core import authority, investigations, words
from orchestrator.core.authority import Principal
from orchestrator.core.models import DLQDashboard, DLQEntry, InvestigationQueue
from orchestrator.core.models.dead_letters import (
    REASON_KINDS,
    RESOLUTION_KINDS,
    DLQEntryQuerySet,
    Grouping,
    quotes_payload,
)
from orchestrator.core.redaction import REDACTED, redacted, redacted_text
from orchestrator.core.shown.documents import Shown
from orchestrator.core.shown.values import At, Fact, State, said

NAMES = {"task": "task_uuid", "execution": "execution_id"}
"""Names that the API gives to the ids of some kinds of subjects, in addition to `subject_id`."""


Described = TypeVar("Described", bound=Any)
Narrowed = Callable[[DLQEntryQuerySet], DLQEntryQuerySet]


def named_by_kind(described: Described) -> Described:
    """Add the subject's id under the name of its kind, and what the name of a template consists of:
    clients of tasks expect `task_uuid`, `namespace_name` and `task_name`."""
    for kind, name in NAMES.items():
        if described.subject_kind == kind:
            setattr(described, name, described.subject_id)
    if described.subject_kind == "task":
        described.namespace_name, _, template = described.subject_name.partition("/")
        described.task_name = template.partition("/")[0]
    return described


class Note(BaseModel):
    """A note of an investigator."""

    at: datetime
    by: str
    on_behalf_of: str = Field("", description="The name that the author gave; nobody checked it.")
    text: str


class DLQSummary(Shown):
    """An entry as listings show it."""

    dlq_entry_uuid: UUID
    subject_kind: str = Field(
        description="The kind of its subject, such as `task`; empty for a letter."
    )
    subject_id: UUID | None
    subject_name: str = Field(description="The subject's action or template.")
    task_uuid: UUID | None = Field(None, description="`subject_id`, if it is about a task.")
    namespace_name: str | None = Field(None, description="Of its template, if it is about a task.")
    task_name: str | None = Field(None, description="That of its template, if it is about a task.")
    execution_id: UUID | None = Field(
        None, description="`subject_id`, if it is about an execution."
    )
    attempt: int | None
    original_state: str = Field(description="State or status of its subject at that time.")
    dlq_reason: DLQEntry.Reason
    detail: str = Field(
        description="What was wrong; `***` without `payloads.read` if it quotes a payload."
    )
    dlq_timestamp: datetime = Field(description="The time when it was opened.")
    opened_by: str
    occurrences: int = Field(
        description="Number of identical letters without an attempt that came while it was pending."
    )
    last_seen_at: datetime | None = Field(
        description="The time when the last of these was drained."
    )
    resolution_status: DLQEntry.Resolution
    resolution_notes: str = Field(description="The texts of all notes, one after another.")
    resolved_at: datetime | None
    resolved_by: str
    created_at: datetime = Field(
        validation_alias="dlq_timestamp", description="The same as `dlq_timestamp`."
    )
    updated_at: datetime | None = Field(
        description="The time of the last change by an investigator; null if there was none."
    )
    original_exchange: str
    original_queue: str
    original_routing_key: str

    @model_validator(mode="after")
    def _name_the_subject(self) -> Self:
        return named_by_kind(self)


class DLQDetail(DLQSummary):
    """An entry with everything that was stored."""

    task_snapshot: Any = Field(
        description="Its subject at that time; secrets are redacted. `***` without `payloads.read`."
    )
    notes: list[Note]
    metadata: dict[str, Any]
    headers: Any = Field(description="`***` without `payloads.read`.")
    x_death: Any = Field(description="The broker's own record of a dead letter.")
    raw_body: str | None = Field(
        description="Base64; stored if it could not be read. Secrets that have a name are `***`, "
        "and all of it without `payloads.read`."
    )


class DLQReasonStats(Shown):
    """Counts and times of the investigations of one reason."""

    dlq_reason: str
    total_entries: int
    pending: int
    manually_resolved: int
    permanent_failures: int
    cancelled: int
    oldest_entry: datetime
    newest_entry: datetime
    avg_resolution_time_minutes: float | None = Field(description="Only closed entries count.")


class DLQSubjectStats(DLQReasonStats):
    """Counts and times of the investigations of one reason and one action, template or other."""

    subject_kind: str = Field(description="Empty for letters without a subject.")
    subject_name: str


class DLQNamespaceStats(DLQReasonStats):
    """Counts and times of the investigations of one reason, of templates of one namespace."""

    namespace_name: str = Field(description="Empty for what belongs to no namespace.")


class DLQQueueStats(DLQReasonStats):
    """Counts and times of the investigations of one reason, of letters from one queue."""

    original_queue: str = Field(description="Empty for what is about no letter.")


class DLQHourStats(DLQReasonStats):
    """Counts and times of the investigations of one reason that were opened within one hour."""

    hour: datetime = Field(description="The beginning of the hour, in UTC.")


STATS = {
    Grouping.SUBJECT: DLQSubjectStats,
    Grouping.NAMESPACE: DLQNamespaceStats,
    Grouping.QUEUE: DLQQueueStats,
    Grouping.HOUR: DLQHourStats,
}


class Investigation(Shown):
    """A pending entry, and how urgent it is."""

    dlq_entry_uuid: UUID
    subject_kind: str
    subject_id: UUID | None
    subject_name: str
    task_uuid: UUID | None = None
    namespace_name: str | None = None
    task_name: str | None = None
    execution_id: UUID | None = None
    dlq_reason: str
    original_state: str
    detail: str
    dlq_timestamp: datetime
    minutes_in_dlq: float
    priority_score: float = Field(
        description="The base of its reason, the priority of its execution, and a point for each "
        "minute, at most 10,000."
    )

    @model_validator(mode="after")
    def _name_the_subject(self) -> Self:
        return named_by_kind(self)


def summary(entry: DLQEntry, *, seen_by: Principal) -> DLQSummary:
    """An entry as listings show it."""
    shown = DLQSummary.model_validate(entry)
    shown.detail = detail(entry, seen_by=seen_by)
    return shown


def urgency(row: InvestigationQueue, *, seen_by: Principal) -> Investigation:
    """A pending entry, and how urgent it is."""
    shown = Investigation.model_validate(row)
    shown.detail = detail(row, seen_by=seen_by)
    return shown


def stats(
    *,
    seen_by: Principal,
    limit: int,
    within: Narrowed | None = None,
    by: Grouping | None = None,
) -> list[DLQReasonStats]:
    """Counts and times of the investigations of each reason, of those that the caller may see: the
    first `limit` rows. `within` leaves some of them, by a filter. With `by`, a reason has a row for
    each of its groups, see `counted_by`."""
    is_whole = within is None and by is None
    if is_whole and authority.reach(seen_by, "dlq.read").is_everywhere:
        return [DLQReasonStats.model_validate(row) for row in DLQDashboard.objects.all()[:limit]]
    rows = DLQEntry.objects.visible_to(seen_by)
    rows = within(rows) if within else rows
    if by is None:
        return [DLQReasonStats(**row) for row in rows.counted_by_reason()[:limit]]
    return [STATS[by](**row) for row in rows.counted_by(by, limit=limit)]


def whole(entry: DLQEntry, *, seen_by: Principal) -> DLQDetail:
    """An entry with everything that was stored, without its secrets."""
    return DLQDetail.model_construct(
        **dict(summary(entry, seen_by=seen_by)),
        task_snapshot=snapshot(entry, seen_by=seen_by),
        notes=[Note.model_validate(note) for note in entry.notes],
        metadata=metadata(entry),
        headers=headers(entry, seen_by=seen_by),
        x_death=x_death(entry),
        raw_body=_encoded(body(entry, seen_by=seen_by)),
    )


def snapshot(entry: DLQEntry, *, seen_by: Principal) -> Any:
    """Its subject then. It was stored without its secrets; this is for names that came since."""
    return of_subject(redacted(entry.snapshot), entry, seen_by=seen_by)


def of_subject(snapshot: Any, entry: DLQEntry, *, seen_by: Principal) -> Any:
    """The snapshot of its subject, as far as the caller may see it: without `payloads.read` `***`
    for what went into the work or came out of it, or for all if the kind does not say what that
    is."""
    if authority.may(seen_by, authority.PAYLOADS, entry.place):
        return snapshot
    kind = investigations.kinds().get(entry.subject_kind)
    return _hidden(snapshot, kind.payloads) if kind and kind.payloads else REDACTED


def _hidden(value: Any, names: Collection[str]) -> Any:
    if isinstance(value, dict):
        return {
            key: REDACTED if key in names and item is not None else _hidden(item, names)
            for key, item in value.items()
        }
    return [_hidden(item, names) for item in value] if isinstance(value, list) else value


def metadata(entry: DLQEntry) -> Any:
    """The metadata that the investigators have added."""
    return redacted(entry.metadata)


def headers(entry: DLQEntry, *, seen_by: Principal) -> Any:
    """The headers of its letter, of which anybody may have written any."""
    return payload(redacted(entry.headers), entry, seen_by)


def x_death(entry: DLQEntry) -> Any:
    """The broker's record of its letter."""
    return redacted(entry.x_death)


def body(entry: DLQEntry, *, seen_by: Principal) -> bytes | str | None:
    """The body of its letter, as received but for secrets that have a name; or `***`."""
    if entry.raw_body is None:
        return None
    shown: bytes | str = payload(_without_secrets(bytes(entry.raw_body)), entry, seen_by)
    return shown


def _without_secrets(content: bytes) -> bytes:
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return content
    shown = redacted_text(text)
    return content if shown == text else shown.encode("utf-8", "replace")


def _encoded(body: bytes | str | None) -> str | None:
    return base64.b64encode(body).decode() if isinstance(body, bytes) else body


def payload(value: Any, entry: DLQEntry | InvestigationQueue, seen_by: Principal) -> Any:
    """A part of an entry that a message or its subject brought."""
    return authority.payload(value, of=entry.place, seen_by=seen_by)


def detail(entry: DLQEntry | InvestigationQueue, *, seen_by: Principal) -> str:
    """The detail of what was wrong. It may quote the errors of actions, or a message."""
    text: str = entry.detail
    if text and quotes_payload(entry.subject_kind, entry.dlq_reason):
        text = payload(redacted_text(text), entry, seen_by)
    return text


def about(row: InvestigationQueue, *, seen_by: Principal) -> str:
    """The kind and name of its subject; for a letter, what was wrong with it."""
    if row.subject_name:
        return f"{row.subject_kind} {row.subject_name}"
    return detail(row, seen_by=seen_by)


def notes(entry: DLQEntry) -> list[tuple[str, str, str]]:
    """The time, the author and the text of each note."""
    return [(note["at"], _author(note), note.get("text", "")) for note in entry.notes]


def _author(note: dict[str, str]) -> str:
    name = note.get("on_behalf_of")
    return f"{note['by']} on behalf of {name}" if name else note["by"]


def situation(entry: DLQEntry, now: datetime, *, seen_by: Principal) -> list[Fact]:
    """The event, and the people who looked into it. Each face adds the link to its subject."""
    seen = None
    if entry.occurrences > 1 and entry.last_seen_at:
        seen = At(entry.last_seen_at, f"{entry.occurrences:,} in total, this was the last one")
    return said(
        [
            ("Entry", str(entry.dlq_entry_uuid)),
            ("Reason", State(entry.dlq_reason, REASON_KINDS)),
            ("Resolution", State(entry.resolution_status, RESOLUTION_KINDS)),
            ("Detail", detail(entry, seen_by=seen_by)),
            ("Attempt", entry.attempt),
            ("State then", State(entry.original_state) if entry.original_state else None),
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
    """An AMQP timestamp: seconds since 1970, or the client's datetime as JSON text."""
    try:
        if isinstance(value, int):
            return datetime.fromtimestamp(value, UTC)
        at = datetime.fromisoformat(value)
        return at if at.tzinfo else at.replace(tzinfo=UTC)
    except (OverflowError, OSError, TypeError, ValueError):
        return "" if value is None else value
