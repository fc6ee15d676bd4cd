"""Annotate and close entries. A closed entry never changes again."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.db import transaction

from orchestrator.core import metrics
from orchestrator.core.errors import Conflict, MusterError, NotFound
from orchestrator.core.models import DLQEntry, DLQEntryEvent

TEXT_MAX = 10_000
"""Characters of a note, and of the text that opens an entry by hand."""

GIVEN_NAME_MAX = 150
"""Characters of a name that somebody gives for the person on whose behalf they act."""


class UnknownEntry(NotFound):
    """No DLQ entry has this id."""


class EntryIsClosed(Conflict):
    """A closed entry is immutable."""

    kind = "already-closed"


class NothingToChange(MusterError):
    """Expected a resolution, a note or metadata."""


def annotate(
    entry_uuid: UUID,
    *,
    now: datetime,
    actor: str,
    note: str = "",
    metadata: Mapping[str, Any] | None = None,
    on_behalf_of: str = "",
) -> DLQEntry:
    """Append a note, merge metadata; returns the entry as it is now.

    `on_behalf_of`: the name that the actor gave for the person behind the change. It is kept with
    the note, and nobody has checked it.

    Raises UnknownEntry, EntryIsClosed and NothingToChange.
    """
    if not note and not metadata:
        raise NothingToChange
    return _change(
        entry_uuid,
        now=now,
        actor=actor,
        note=note,
        metadata=metadata or {},
        on_behalf_of=on_behalf_of,
    )


def close(
    entry_uuid: UUID,
    *,
    resolution: DLQEntry.Resolution,
    now: datetime,
    actor: str,
    note: str = "",
    metadata: Mapping[str, Any] | None = None,
    on_behalf_of: str = "",
) -> DLQEntry:
    """End the investigation; returns the entry as it stays. For `on_behalf_of` see `annotate`.

    Raises UnknownEntry, and EntryIsClosed, also after a lost race to close it.
    """
    return _change(
        entry_uuid,
        now=now,
        actor=actor,
        note=note,
        metadata=metadata or {},
        on_behalf_of=on_behalf_of,
        resolution_status=resolution,
        resolved_at=now,
        resolved_by=actor,
    )


def _change(
    entry_uuid: UUID,
    *,
    now: datetime,
    actor: str,
    note: str,
    metadata: Mapping[str, Any],
    on_behalf_of: str,
    **values: Any,
) -> DLQEntry:
    with transaction.atomic():
        pending = DLQEntry.objects.select_for_update().filter(dlq_entry_uuid=entry_uuid)
        entry = pending.defer("headers", "x_death", "snapshot", "raw_body").first()
        if entry is None:
            raise UnknownEntry(f"No DLQ entry has the id {entry_uuid}")
        if entry.is_closed:
            raise _is_closed(entry)
        if note or on_behalf_of:
            values["notes"] = [*entry.notes, _note(note, on_behalf_of, now=now, actor=actor)]
        if metadata:
            values["metadata"] = entry.metadata | metadata
        values["updated_at"] = now
        if not DLQEntry.objects.pending().filter(pk=entry.pk).update(**values):
            raise _is_closed(entry)  # another process got there first
        if "resolution_status" in values:
            DLQEntryEvent.objects.create(entry=entry, state=values["resolution_status"])
            hours = (now - entry.dlq_timestamp).total_seconds() / 3_600
            metrics.DLQ_HOURS.observe([(entry.dlq_reason, max(0.0, hours))])
    return DLQEntry.objects.get(pk=entry.pk)


def _note(text: str, on_behalf_of: str, *, now: datetime, actor: str) -> dict[str, str]:
    """A note as it is stored. Without a name it has no `on_behalf_of`; without a text, the name is
    all that there is to say."""
    at = now.astimezone(UTC).isoformat().replace("+00:00", "Z")
    note = {"at": at, "by": actor, "text": text}
    return note | {"on_behalf_of": on_behalf_of} if on_behalf_of else note


def _is_closed(entry: DLQEntry) -> EntryIsClosed:
    entry.refresh_from_db()
    return EntryIsClosed(
        f"DLQ entry {entry.dlq_entry_uuid} is {entry.resolution_status} since "
        f"{entry.resolved_at:%Y-%m-%d %H:%M:%S} UTC, by {entry.resolved_by}; "
        "a closed entry is final"
    )
