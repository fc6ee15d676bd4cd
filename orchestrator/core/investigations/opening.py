"""Open entries, in the transaction of the caller that found the reason: both happen, or neither."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import transaction

from orchestrator.core import authority, metrics
from orchestrator.core.authority import Principal
from orchestrator.core.copying import insert_many
from orchestrator.core.errors import Conflict
from orchestrator.core.investigations.subjects import Subject, UnknownSubject, take
from orchestrator.core.models import DLQEntry, DLQEntryEvent
from orchestrator.core.models.dead_letters import place_of_subject


class AlreadyOpen(Conflict):
    """There is a pending entry for it: add a note to that one, or close it first."""

    kind = "already-open"


def keep(entries: Sequence[DLQEntry]) -> list[DLQEntry]:
    """Insert entries in bulk; returns those that did not exist yet.

    An entry exists if its letter was kept before, or if its subject has a pending one. Letters that
    name no attempt are counted: identical ones share one entry while it is pending.
    """
    if not entries:
        return []
    repeatable = [entry for entry in entries if entry.is_repeatable]
    single = [entry for entry in entries if not entry.is_repeatable]
    with transaction.atomic():
        opened = DLQEntry.objects.insert(single) if single else []
        if repeatable:
            opened += DLQEntry.objects.insert_or_count(_counted(repeatable))
        insert_many([DLQEntryEvent(entry=entry, state=entry.resolution_status) for entry in opened])
        metrics.DLQ_ENTRIES_CREATED.add(Counter(str(entry.dlq_reason) for entry in opened))
    return opened


def _counted(entries: Sequence[DLQEntry]) -> list[DLQEntry]:
    """Merge identical entries into one."""
    by_fingerprint: dict[str | None, DLQEntry] = {}
    for entry in entries:
        first = by_fingerprint.setdefault(entry.fingerprint, entry)
        if first is not entry:
            first.occurrences += entry.occurrences
        first.last_seen_at = entry.dlq_timestamp
    return list(by_fingerprint.values())


def open_for(
    subjects: Sequence[Subject],
    *,
    reason: DLQEntry.Reason,
    now: datetime,
    actor: str,
    detail: str | Mapping[UUID, str] = "",
) -> list[DLQEntry]:
    """Open an entry for each, in the caller's transaction; returns those opened.

    A subject that has a pending entry, and may have only one, is left out. Takes a fixed number of
    statements for any number of subjects. `detail` says what was wrong, for all of them or by id;
    it is shown as it is.
    """
    return keep(
        [
            DLQEntry(
                **of_subject(subject),
                dlq_reason=reason,
                detail=detail if isinstance(detail, str) else detail.get(subject.id, ""),
                dlq_timestamp=now,
                opened_by=actor,
            )
            for subject in subjects
        ]
    )


def of_subject(subject: Subject) -> dict[str, Any]:
    """The columns of an entry that describe its subject."""
    return {
        "subject_kind": subject.kind,
        "subject_id": subject.id,
        "subject_name": subject.name,
        "attempt": subject.attempt,
        "original_state": subject.state,
        "snapshot": subject.snapshot,
    }


def open_manually(
    kind: str,
    id: UUID,
    *,
    detail: str,
    now: datetime,
    actor: str,
    principal: Principal | None = None,
) -> DLQEntry:
    """Open an entry because somebody asks for it; returns it.

    Raises UnknownKind and UnknownSubject, also for a subject beyond the reach of `principal`, and
    AlreadyOpen if there is a pending one; for an execution, only a pending manual one counts.
    """
    subject = take(kind, id, now=now)
    place = place_of_subject(kind, subject.name)
    if principal is not None and not authority.may(principal, "dlq.change", place):
        raise UnknownSubject(f"No {kind} has the id {id}")
    opened = open_for(
        [subject],
        reason=DLQEntry.Reason.MANUAL_DLQ,
        detail=detail,
        now=now,
        actor=actor,
    )
    if not opened:
        raise AlreadyOpen(
            f"There is a pending entry for {kind} {id}: add a note to it, or close it first"
        )
    return opened[0]
