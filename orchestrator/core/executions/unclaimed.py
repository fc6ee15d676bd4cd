"""What becomes of a dispatch that its worker has not claimed.

A wait that has run out says something of the worker only if that is gone. A worker that beats is
busy, or was not reached: then the execution goes back to the backlog, where no TTL runs, and that
counts for no policy. So does what somebody else could take. Only its deadline limits how often.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db.models import F, Q

from orchestrator.core import fleet
from orchestrator.core.executions import unloaded
from orchestrator.core.executions.attempts import end_attempts, give_back
from orchestrator.core.fleet.lives import CHECK
from orchestrator.core.models import Execution, Worker
from orchestrator.core.models.executions import ExecutionQuerySet
from orchestrator.core.reasons import Reason

PATIENCE = timedelta(seconds=5)
"""What a worker does not claim for so long starts sooner on another that has a free slot."""


@dataclass(frozen=True)
class Expired:
    """What `expire` did, as ids; what is in neither was claimed or ended meanwhile."""

    ended: set[UUID]
    """Ended, or sent to another attempt by their policy."""
    returned: set[UUID]
    """Sent back to the backlog."""


def expire(
    executions: Sequence[Execution],
    *,
    reason: Reason,
    detail: str,
    failed_by: str,
    now: datetime,
) -> Expired:
    """End dispatches that were not claimed in time, or send them back.

    One ends where it was asked for: it is pinned to this worker, or has a limit of its own. It
    also ends where nothing can be expected: its worker is gone, and nobody else could take it.
    """
    limited = [execution for execution in executions if _has_limit_of_its_own(execution)]
    others = [execution for execution in executions if not _has_limit_of_its_own(execution)]
    hopeful = _with_prospects(others, now)
    ended = end_attempts(
        [*limited, *(execution for execution in others if execution.pk not in hopeful)],
        reason=reason,
        detail=detail,
        failed_by=failed_by,
        now=now,
    )
    returned = give_back(
        unstarted=[execution for execution in others if execution.pk in hopeful],
        reason=reason,
        now=now,
        actor=failed_by,
    )
    return Expired(ended, returned)


def end_or_return(executions: Sequence[Execution], **why: Any) -> set[UUID]:
    """As `expire`; returns all ids that moved."""
    expired = expire(executions, **why)
    return expired.ended | expired.returned


def _has_limit_of_its_own(execution: Execution) -> bool:
    return (
        execution.pinned_worker_id is not None
        or execution.queue_ttl_ms is not None
        or execution.scheduled_timeout_seconds is not None
    )


def _with_prospects(executions: Sequence[Execution], now: datetime) -> set[UUID]:
    """The ids of those whose worker beats, or that another worker could take, which is there."""
    if not executions:
        return set()
    beating = set(Worker.objects.up().fresh(now).values_list("pk", flat=True))
    present = fleet.present(now=now)
    return {
        execution.pk
        for execution in executions
        if execution.worker_id in beating or _first_that_could_take(execution, present)
    }


def release_stranded(*, now: datetime) -> int:
    """Send elsewhere what was dispatched and not claimed where no claim can be expected: on a
    worker that is gone, drains, fails a check, or lacks its code. Returns how many.

    Where nobody else could take it, it stays: its worker may come back before its TTL runs out,
    and the backlog would not keep it longer. So does what is pinned to that worker.
    """
    unable = ~Q(worker__status=Worker.Status.ACTIVE) | unloaded.on_workers_without_code()
    waiting = movable().filter(unable)
    if not waiting.exists():
        return 0
    eligible = list(Worker.objects.eligible(now))
    stranded = [
        execution
        for execution in waiting.without_contents().with_actions()
        if _first_that_could_take(execution, eligible)
    ]
    return _give_back(stranded, Reason.GIVEN_BACK, now=now)


def release_waiting(*, now: datetime) -> int:
    """Send elsewhere what waits behind a worker that has no free slot, or that did not claim it
    when it was sent again, as far as others have free slots. Returns how many.

    It was sent ahead because a slot was about to fall free, and then that slot's action took long.
    """
    waiting = movable().dispatched_for(PATIENCE, now)
    if not waiting.exists():
        return 0
    held = Execution.objects.load_by_worker()
    free = {
        worker: worker.capacity - held.get(worker.pk, 0)
        for worker in Worker.objects.eligible(now)
        if worker.capacity > held.get(worker.pk, 0)
    }
    moved: list[Execution] = []
    for execution in _stuck(waiting) if free else ():
        others = [worker for worker, slots in free.items() if slots]
        if (worker := _first_that_could_take(execution, others)) is not None:
            free[worker] -= 1
            moved.append(execution)
    return _give_back(moved, Reason.MOVED, now=now)


def release_from(*, worker_id: int, now: datetime, actor: str) -> int:
    """Send elsewhere what this worker was given and has not claimed; returns how many."""
    waiting = movable().filter(worker_id=worker_id).without_contents()
    return len(give_back(unstarted=list(waiting), now=now, actor=actor))


def movable() -> ExecutionQuerySet:
    """Dispatched, not claimed, and free to go elsewhere."""
    return Execution.objects.dispatched().filter(pinned_worker__isnull=True)


def _stuck(waiting: ExecutionQuerySet) -> list[Execution]:
    """Those of them that their worker has no slot for, or was told of twice."""
    running = Execution.objects.running_by_worker()
    workers = Worker.objects.filter(pk__in=running).values_list("pk", "capacity")
    full = [pk for pk, capacity in workers if running[pk] >= capacity]
    told_twice = Q(dispatched_again_at__gte=F("scheduled_at"))
    stuck = waiting.filter(Q(worker_id__in=full) | told_twice).order_by("-priority", "pk")
    return stuck.without_contents().with_actions()


def _first_that_could_take(execution: Execution, workers: Iterable[Worker]) -> Worker | None:
    need = fleet.Need.of_execution(execution)
    for worker in workers:
        if need.may_go_to(worker.runtimes, worker.labels, worker.missing_code):
            return worker
    return None


def _give_back(executions: Sequence[Execution], reason: Reason, *, now: datetime) -> int:
    size: int = settings.MUSTER.batch_size
    batches = [executions[start : start + size] for start in range(0, len(executions), size)]
    return sum(
        len(give_back(unstarted=batch, reason=reason, now=now, actor=CHECK)) for batch in batches
    )
