"""Investigations of tasks that cannot go on."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from datetime import datetime
from uuid import UUID

from orchestrator.core import investigations
from orchestrator.core.investigations import EntryIsClosed
from orchestrator.core.models import DLQEntry
from orchestrator.workflows import snapshots
from orchestrator.workflows.models import Task

WANT_OF_A_WORKER = DLQEntry.Reason.WORKER_UNAVAILABLE


def investigate(
    task: Task, reason: DLQEntry.Reason, detail: str, *, now: datetime, actor: str
) -> None:
    """Open an investigation of a task, in the transaction that found the reason; nothing is opened
    if one is pending, see `give_way`."""
    give_way([task.pk], to=reason, now=now, actor=actor)
    subjects = snapshots.subjects([task], now=now)
    investigations.open_for(subjects, reason=reason, detail=detail, now=now, actor=actor)


def give_way(task_ids: Collection[UUID], *, to: DLQEntry.Reason, now: datetime, actor: str) -> None:
    """Close what is pending about these tasks for want of a worker, as they have another cause now.

    They have gone on by themselves since, so it may be that nobody looks at that one.
    """
    if to == WANT_OF_A_WORKER:
        return
    pending = DLQEntry.objects.pending().filter(
        subject_id__in=task_ids, subject_kind=snapshots.KIND, dlq_reason=WANT_OF_A_WORKER
    )
    for entry_uuid in pending.values_list("dlq_entry_uuid", flat=True):
        with suppress(EntryIsClosed):  # somebody got there first
            investigations.close(
                entry_uuid,
                resolution=DLQEntry.Resolution.CANCELLED,
                note=f"the task went on by itself; it has another entry now: {to}",
                now=now,
                actor=actor,
            )
