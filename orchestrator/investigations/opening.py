"""Open entries, in the transaction of whoever found the reason: both happen, or neither."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import transaction

from orchestrator import metrics
from orchestrator.errors import Conflict
from orchestrator.investigations import snapshots
from orchestrator.models import DLQEntry, Execution, Task


class AlreadyOpen(Conflict):
    """There is a pending entry for it: add a note to that one, or close it first."""

    kind = "already-open"


def keep(entries: Sequence[DLQEntry]) -> list[DLQEntry]:
    """Insert entries in bulk; returns those that were not there yet.

    An entry is there if its letter was kept before, or if its task has a pending one. A letter that
    names no attempt is counted: identical ones have one entry between them while that is pending.
    """
    if not entries:
        return []
    repeatable = [entry for entry in entries if entry.is_repeatable]
    single = [entry for entry in entries if not entry.is_repeatable]
    with transaction.atomic():
        opened = DLQEntry.objects.insert(single) if single else []
        if repeatable:
            opened += DLQEntry.objects.insert_or_count(_counted(repeatable))
        metrics.DLQ_ENTRIES_CREATED.add(Counter(str(entry.dlq_reason) for entry in opened))
    return opened


def _counted(entries: Sequence[DLQEntry]) -> list[DLQEntry]:
    """One entry for all that are identical."""
    by_fingerprint: dict[str | None, DLQEntry] = {}
    for entry in entries:
        first = by_fingerprint.setdefault(entry.fingerprint, entry)
        if first is not entry:
            first.occurrences += entry.occurrences
        first.last_seen_at = entry.dlq_timestamp
    return list(by_fingerprint.values())


def open_for_executions(
    executions: Sequence[Execution],
    *,
    reason: DLQEntry.Reason,
    detail: str,
    now: datetime,
    actor: str,
) -> list[DLQEntry]:
    """Open an entry for each; they come with their workers and actions, as they were before."""
    return keep(
        [
            DLQEntry(
                execution=execution,
                attempt=execution.attempt or None,
                original_state=str(execution.status),
                dlq_reason=reason,
                detail=detail,
                dlq_timestamp=now,
                opened_by=actor,
                task_snapshot=snapshots.of_execution(execution),
            )
            for execution in executions
        ]
    )


def open_for_tasks(
    tasks: Sequence[Task],
    *,
    reason: DLQEntry.Reason,
    now: datetime,
    actor: str,
    detail: str | Mapping[UUID, str] = "",
) -> list[DLQEntry]:
    """Open an entry for each task as it is now, in the caller's transaction; returns those opened.

    A task that has a pending entry is left out. A fixed number of statements, however many there
    are. `detail` says of all, or of each by its id, what was wrong; it is shown as it is.
    """
    taken = snapshots.of_tasks(tasks, now=now)
    return keep(
        [
            DLQEntry(
                task=task,
                original_state=str(task.state),
                dlq_reason=reason,
                detail=detail if isinstance(detail, str) else detail.get(task.pk, ""),
                dlq_timestamp=now,
                opened_by=actor,
                task_snapshot=taken[task.pk],
            )
            for task in tasks
        ]
    )


def open_manually(subject: Execution | Task, *, detail: str, now: datetime, actor: str) -> DLQEntry:
    """Open an entry because somebody asks for it; returns it.

    Raises AlreadyOpen if a task has a pending one, or an execution one that was asked for before.
    """
    told: Any = {
        "reason": DLQEntry.Reason.MANUAL_DLQ, "detail": detail, "now": now, "actor": actor
    }  # fmt: skip
    if isinstance(subject, Task):
        opened = open_for_tasks([subject], **told)
    else:
        opened = open_for_executions([subject], **told)
    if not opened:
        noun = subject._meta.verbose_name
        raise AlreadyOpen(
            f"There is a pending entry for {noun} {subject.pk}: add a note to it, or close it first"
        )
    return opened[0]
