"""Settle a worker's executions when it is lost, replaced, drained, or unfit to run them.

What it had started is lost with it. What it never claimed goes elsewhere at once instead of waiting
for its TTL: the attempt grows, and the fence refuses the old message.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import F, Q

from orchestrator.core import clock, fleet, investigations
from orchestrator.core.executions.attempts import end_all, end_attempts, give_back
from orchestrator.core.executions.subjects import subjects
from orchestrator.core.executions.unclaimed import movable, release_from
from orchestrator.core.fleet.lives import CHECK
from orchestrator.core.models import DLQEntry, Execution, Worker
from orchestrator.core.models.execution_sets import STARTED, SUSPECT_FROM
from orchestrator.core.models.executions import ExecutionQuerySet
from orchestrator.core.reasons import Reason


def settle_lost(*, now: datetime) -> int:
    """End what started on workers that are gone: silent, stopped, or in a newer life. Returns how
    many.

    A worker that left properly has finished what it ran, so whatever it still holds is lost.
    """
    return _end_started(Execution.objects.open(), now=now)


def settle_replaced(*, worker_id: int, now: datetime) -> int:
    """Settle at once what the earlier lives of a worker left when it begins a new one.

    The new life may get the same executions again, but as new attempts, whose messages no frozen
    process of an earlier life can hold. Returns how many.
    """
    left = Execution.objects.open().filter(worker_id=worker_id)
    settled = _end_started(left, now=now)
    earlier = movable().filter(worker_id=worker_id, scheduled_at__lt=F("worker__registered_at"))
    batch = list(earlier.without_contents())
    return settled + len(give_back(unstarted=batch, now=now, actor=CHECK))


def drain_worker(*, worker_id: int, actor: str, reason: str, now: datetime) -> Worker:
    """Drain a worker (see `fleet.order_drain`) and release what waits for it to other workers.

    Raises UnknownWorker.
    """
    worker = fleet.order_drain(worker_id=worker_id, actor=actor, reason=reason, now=now)
    release_from(worker_id=worker_id, now=now, actor=actor)
    return worker


def _end_started(executions: ExecutionQuerySet, *, now: datetime) -> int:
    gone = Q(worker__gone_at__isnull=False) | ~Q(worker_incarnation=F("worker__incarnation"))
    return end_all(
        executions.filter(gone, status__in=STARTED).select_related("worker"),
        reason=Reason.WORKER_LOST,
        detail="its worker stopped sending heartbeats or was replaced",
        failed_by=CHECK,
        moment=clock.Running(now),
        end=_end_lost,
    )


def _end_lost(executions: Sequence[Execution], *, now: datetime, **why: Any) -> set[UUID]:
    """End attempts whose worker was lost, in the caller's transaction. An execution that has lost
    several workers, and has no attempt left, may have caused the loss: an investigation is
    opened."""
    moved = end_attempts(executions, now=now, **why)
    lost_again = {
        e.pk: e for e in executions if e.pk in moved and e.lost_workers + 1 >= SUSPECT_FROM
    }
    if lost_again:
        over = Execution.objects.filter(pk__in=lost_again, ended_at__isnull=False)
        investigations.open_for(
            subjects([lost_again[pk] for pk in over.values_list("pk", flat=True)]),
            reason=DLQEntry.Reason.POISON,
            detail="each worker that ran it was lost meanwhile: see its history",
            now=now,
            actor=CHECK,
        )
    return moved
