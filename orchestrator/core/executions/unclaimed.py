"""Settle dispatches that their worker has not claimed.

An expired wait says something about the worker only if the worker is gone. A worker that sends
heartbeats is busy, or was not reached: then the execution goes back to the backlog, where no TTL
runs, and no policy counts it. The same holds if another worker could take it, and for the work of a
queue, which waits for its workers. Only the deadline limits how often.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db.models import F, Q

from orchestrator.core import clock, fleet
from orchestrator.core.executions import unloaded
from orchestrator.core.executions.attempts import end_attempts, give_back
from orchestrator.core.fleet.lives import CHECK
from orchestrator.core.models import Execution, Worker
from orchestrator.core.models.executions import ExecutionQuerySet
from orchestrator.core.reasons import Reason

PATIENCE = timedelta(seconds=5)
"""After this wait for a claim, another worker with a free slot gets the execution."""


@dataclass(frozen=True)
class Expired:
    """The outcome of `expire`, as ids; an id in neither set was claimed or ended meanwhile."""

    ended: set[UUID]
    """Ended, or given another attempt by their policy."""
    returned: set[UUID]
    """Sent back to the backlog."""


def expire(
    executions: Sequence[Execution],
    *,
    reason: Reason,
    detail: str | Mapping[UUID, str],
    failed_by: str,
    now: datetime,
) -> Expired:
    """End dispatches that were not claimed in time, or return them to the backlog.

    A dispatch ends if its request asked for that: it has a limit of its own. It also ends if there
    is no prospect: its worker is gone, no other worker could take it, as it is pinned or needs what
    none has, and it belongs to no queue. `detail`: one for all, or by id.
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
    """Do as `expire`; returns all ids that moved."""
    expired = expire(executions, **why)
    return expired.ended | expired.returned


def _has_limit_of_its_own(execution: Execution) -> bool:
    return execution.queue_ttl_ms is not None or execution.scheduled_timeout_seconds is not None


def _with_prospects(executions: Sequence[Execution], now: datetime) -> set[UUID]:
    """The ids of those whose worker sends heartbeats, that another present worker could take, or
    that belong to a queue."""
    if not executions:
        return set()
    beating = set(Worker.objects.up().fresh(now).values_list("pk", flat=True))
    present = fleet.present(now=now)
    return {
        execution.pk
        for execution in executions
        if execution.queue is not None
        or execution.worker_id in beating
        or (execution.pinned_worker_id is None and _first_that_could_take(execution, present))
    }


def release_stranded(*, now: datetime) -> int:
    """Release to other workers what a worker will not claim, as it is gone, drains, fails a check,
    or lacks the code. Returns how many.

    One that no other worker could take stays: its worker may come back before the TTL runs out, and
    the backlog would not keep it longer. One that is pinned to its worker stays too.
    """
    moment = clock.Running(now)
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
    return _give_back(stranded, Reason.GIVEN_BACK, moment)


def release_waiting(*, now: datetime) -> int:
    """Release dispatches that wait for a worker without a free slot, or that were sent twice and
    not claimed, as far as other workers have free slots. Returns how many.

    They were sent early because a slot was about to become free, but its action took long.
    """
    moment = clock.Running(now)
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
    return _give_back(moved, Reason.MOVED, moment)


def release_from(*, worker_id: int, now: datetime, actor: str) -> int:
    """Release what this worker was given and has not claimed; returns how many."""
    waiting = movable().filter(worker_id=worker_id).without_contents()
    return len(give_back(unstarted=list(waiting), now=now, actor=actor))


def release_paused(*, worker_id: int, names: Collection[str], now: datetime, actor: str) -> int:
    """Release what this worker was given of queues that it has paused, and has not claimed; returns
    how many. `names` are those of `Execution.lane_key`. What is pinned to it waits for it."""
    waiting = [
        execution
        for execution in movable().filter(worker_id=worker_id).without_contents()
        if execution.lane_key in names
    ]
    if not waiting:
        return 0
    reason = Reason.QUEUE_PAUSED
    return len(give_back(unstarted=waiting, now=now, actor=actor, reason=reason))


def movable() -> ExecutionQuerySet:
    """Dispatched, not claimed, and free to go elsewhere."""
    return Execution.objects.dispatched().filter(pinned_worker__isnull=True)


def _stuck(waiting: ExecutionQuerySet) -> list[Execution]:
    """Those whose worker has no free slot, or that were sent to it twice."""
    running = Execution.objects.running_by_worker()
    workers = Worker.objects.filter(pk__in=running).values_list("pk", "capacity")
    full = [pk for pk, capacity in workers if running[pk] >= capacity]
    sent_twice = Q(dispatched_again_at__gte=F("scheduled_at"))
    stuck = waiting.filter(Q(worker_id__in=full) | sent_twice).order_by("-priority", "pk")
    return stuck.without_contents().with_actions()


def _first_that_could_take(execution: Execution, workers: Iterable[Worker]) -> Worker | None:
    need = fleet.Need.of_execution(execution)
    for worker in workers:
        if need.may_go_to(worker, worker.missing_code):
            return worker
    return None


def _give_back(executions: Sequence[Execution], reason: Reason, moment: clock.Running) -> int:
    """Each batch at a time that was read after its rows: they may have been dispatched a moment
    ago, and their history must not go back."""
    size: int = settings.MUSTER.batch_size
    batches = [executions[start : start + size] for start in range(0, len(executions), size)]
    return sum(
        len(give_back(unstarted=batch, reason=reason, now=moment(), actor=CHECK))
        for batch in batches
    )
