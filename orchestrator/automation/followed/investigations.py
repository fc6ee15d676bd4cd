"""Events of `core.investigation`: DLQ entries that were opened or closed."""

from __future__ import annotations

import fnmatch
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import QuerySet, TextField, Value
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import NullIf

from orchestrator.automation.followed.history import Followed, depths
from orchestrator.automation.models import Enforcement, Event, Trigger
from orchestrator.automation.models.events import DEEPEST
from orchestrator.automation.recording import NewEvent
from orchestrator.core.frame import NAMESPACES
from orchestrator.core.models import DLQEntry, DLQEntryEvent
from orchestrator.core.models.dead_letters import quotes_payload
from orchestrator.core.redaction import redacted_text

SOURCE = "investigation"
OPENED = DLQEntry.Resolution.PENDING
DETAIL_MAX = 2_000
"""Characters: an event has a limit, and is refused beyond it."""

EXECUTION, TASK = "execution", "task"

Rows = QuerySet[DLQEntryEvent, Any]


def _wanted(trigger: Trigger, rows: Rows) -> Rows:
    given = trigger.parameters
    rows = rows.filter(state__in=given.get("states", [OPENED]))
    for name, column in (("reasons", "dlq_reason"), ("subject_kinds", "subject_kind")):
        if name in given:
            rows = rows.filter(**{f"entry__{column}__in": given[name]})
    columns = (
        "dlq_entry_uuid", "subject_kind", "subject_id", "subject_name", "dlq_reason", "detail",
        "dlq_timestamp", "resolved_at", "original_queue",
    )  # fmt: skip
    rows = rows.select_related("entry").only("state", *(f"entry__{name}" for name in columns))
    # of the snapshot, which may be large, no more than that; SQLite says `null` for none
    correlation_id = KeyTextTransform("correlation_id", "entry__snapshot")
    return rows.annotate(
        correlation_id=NullIf(correlation_id, Value("null"), output_field=TextField())
    )


def _is_named(trigger: Trigger, row: DLQEntryEvent) -> bool:
    patterns = trigger.parameters.get("names")
    return patterns is None or any(
        fnmatch.fnmatchcase(row.entry.subject_name, pattern) for pattern in patterns
    )


def _key(row: DLQEntryEvent) -> str:
    return f"{row.entry.dlq_entry_uuid}:{row.state}"


def _events(trigger: Trigger, rows: Sequence[DLQEntryEvent]) -> list[NewEvent]:
    """An event that was too deep opens an entry. That one is no event, which would be too deep as
    well, and so on for ever."""
    known = _depths([row.entry for row in rows])
    news = [_event(trigger, row, known.get(row.entry.subject_id, 0) + 1) for row in rows]
    return [new for new in news if new.depth <= DEEPEST]


def _depths(entries: Sequence[DLQEntry]) -> Mapping[Any, int]:
    """The depth of the event that each subject answers, or is; other subjects are left out."""
    ids: dict[str, set[UUID]] = defaultdict(set)
    for entry in entries:
        if entry.subject_id is not None:
            ids[entry.subject_kind].add(entry.subject_id)
    answers = Enforcement.objects.filter(pk__in=ids["enforcement"])
    events = Event.objects.filter(pk__in=ids["event"])
    return {
        **depths(ids[EXECUTION]),
        **dict(answers.values_list("pk", "event__depth")),
        **dict(events.values_list("pk", "depth")),
    }


def _event(trigger: Trigger, row: Any, depth: int) -> NewEvent:
    entry: DLQEntry = row.entry
    of_execution = entry.subject_id if entry.subject_kind == EXECUTION else None
    at: datetime = row.entry.dlq_timestamp if row.state == OPENED else row.entry.resolved_at
    return NewEvent(
        trigger=trigger,
        payload={
            "entry_id": str(entry.dlq_entry_uuid),
            "reason": entry.dlq_reason,
            "state": row.state,
            "subject_kind": entry.subject_kind,
            "subject_id": _text(entry.subject_id),
            "subject_name": entry.subject_name,
            "namespace": _namespace(entry),
            "execution_id": _text(of_execution),
            "task_id": _text(entry.subject_id if entry.subject_kind == TASK else None),
            "detail": _detail(entry),
            "queue": entry.original_queue,
            "at": at.isoformat(),
        },
        key=_key(row),
        occurred_at=at,
        # what comes of it is of its subject's tree
        correlation_id=row.correlation_id or _text(of_execution),
        source=SOURCE,
        cause_execution_id=of_execution,
        depth=depth,
    )


def _namespace(entry: DLQEntry) -> str | None:
    place = entry.place
    return place.name if place.about == NAMESPACES else None


def _detail(entry: DLQEntry) -> str:
    """The detail, as who may see payloads sees it."""
    is_quoted = quotes_payload(entry.subject_kind, entry.dlq_reason)
    return (redacted_text(entry.detail) if is_quoted else entry.detail)[:DETAIL_MAX]


def _text(id: UUID | None) -> str | None:
    return None if id is None else str(id)


FOLLOWED = Followed(wanted=_wanted, is_named=_is_named, key=_key, events=_events)
