"""Open entries, in the transaction of whoever found the reason: both happen, or neither."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from django.db import transaction

from orchestrator import metrics
from orchestrator.errors import MusterError
from orchestrator.investigations import snapshots
from orchestrator.models import DLQEntry, Execution


class AlreadyOpen(MusterError):
    """It has a pending entry already: add a note to that one, or close it first."""


def keep(entries: Sequence[DLQEntry]) -> list[DLQEntry]:
    """Insert entries in bulk; returns those that were not there yet, in their order.

    An entry is there if its letter was kept before, or if its task has a pending one.
    """
    if not entries:
        return []
    with transaction.atomic():
        DLQEntry.objects.bulk_create(entries, ignore_conflicts=True)
        # nobody tells which were ignored, but each brings an id of its own
        wanted = DLQEntry.objects.filter(
            dlq_entry_uuid__in=[entry.dlq_entry_uuid for entry in entries]
        )
        ids = dict(wanted.order_by().values_list("dlq_entry_uuid", "pk"))
        opened = [entry for entry in entries if entry.dlq_entry_uuid in ids]
        for entry in opened:
            entry.pk = ids[entry.dlq_entry_uuid]
        metrics.DLQ_ENTRIES_CREATED.add(Counter(str(entry.dlq_reason) for entry in opened))
    return opened


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


def open_manually(execution: Execution, *, detail: str, now: datetime, actor: str) -> DLQEntry:
    """Open an entry because somebody asks for it; returns it.

    Raises AlreadyOpen if there is one that somebody asked for before, and that is pending.
    """
    reason = DLQEntry.Reason.MANUAL_DLQ
    opened = open_for_executions([execution], reason=reason, detail=detail, now=now, actor=actor)
    if not opened:
        raise AlreadyOpen(f"Execution {execution.pk} has a pending {reason} entry already")
    return opened[0]
