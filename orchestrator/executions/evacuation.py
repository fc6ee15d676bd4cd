"""What becomes of a worker's executions when it is lost, replaced, drained, or unfit to run them.

What it had started is lost with it. What it never claimed goes elsewhere at once, rather than when
its TTL has run out: the attempt grows, and the message that is left is fenced out.
"""

from __future__ import annotations

from datetime import datetime

from django.conf import settings
from django.db.models import F, Q

from orchestrator import fleet
from orchestrator.executions.attempts import end_all, give_back
from orchestrator.models import Execution, Worker
from orchestrator.models.executions import STARTED, ExecutionQuerySet
from orchestrator.reasons import Reason
from orchestrator.state_machine import ExecutionStatus

CHECK = "heartbeat_staleness_check"


def settle_lost(*, now: datetime) -> int:
    """End what started on workers that are gone: silent, stopped, or in a newer life.

    A worker that left in good order has finished what it ran, so what it still holds is lost.
    """
    return _end_started(Execution.objects.open(), now=now)


def release_stranded(*, now: datetime) -> int:
    """Send elsewhere what was dispatched and not claimed where no claim can be expected: on a
    worker that is gone, drains or fails a check. Returns how many.

    Where nobody else could take it, it stays: its worker may come back before its TTL runs out,
    and the backlog would not keep it longer. So does what is pinned to that worker.
    """
    waiting = _unclaimed().exclude(worker__status=Worker.Status.ACTIVE)
    if not waiting.exists():
        return 0
    offers = list(Worker.objects.eligible(now).values_list("runtimes", "labels"))
    movable = [
        execution
        for execution in waiting.without_contents().with_actions()
        if any(_could_go_to(_need(execution), *offer) for offer in offers)
    ]
    size: int = settings.MUSTER.batch_size
    batches = [movable[start : start + size] for start in range(0, len(movable), size)]
    return sum(len(give_back(unstarted=batch, now=now, actor=CHECK)) for batch in batches)


def settle_replaced(*, worker_id: int, now: datetime) -> int:
    """A worker has begun a new life: settle what its earlier ones left, without any waiting.

    The new life may well get it again: but as attempts of its own, of which no process that was
    only frozen has the message in hand. Returns how many.
    """
    left = Execution.objects.open().filter(worker_id=worker_id)
    settled = _end_started(left, now=now)
    earlier = _unclaimed().filter(worker_id=worker_id, scheduled_at__lt=F("worker__registered_at"))
    batch = list(earlier.without_contents())
    return settled + len(give_back(unstarted=batch, now=now, actor=CHECK))


def drain_worker(*, worker_id: int, actor: str, reason: str, now: datetime) -> Worker:
    """Drain a worker, see `fleet.order_drain`, and send elsewhere what waits for it.

    Raises UnknownWorker.
    """
    worker = fleet.order_drain(worker_id=worker_id, actor=actor, reason=reason, now=now)
    batch = list(_unclaimed().filter(worker_id=worker_id).without_contents())
    give_back(unstarted=batch, now=now, actor=actor)
    return worker


def _unclaimed() -> ExecutionQuerySet:
    """Dispatched, not claimed, and free to go elsewhere."""
    dispatched = Execution.objects.open().filter(status=ExecutionStatus.SCHEDULED)
    return dispatched.filter(pinned_worker__isnull=True)


def _could_go_to(need: fleet.Need, runtimes: list[str], labels: dict[str, str]) -> bool:
    return need.is_met_by(runtimes, labels) and need.may_have(labels)


def _need(execution: Execution) -> fleet.Need:
    return fleet.Need.of(execution.action.runtime, execution.wanted_labels)


def _end_started(executions: ExecutionQuerySet, *, now: datetime) -> int:
    gone = Q(worker__gone_at__isnull=False) | ~Q(worker_incarnation=F("worker__incarnation"))
    return end_all(
        executions.filter(gone, status__in=STARTED),
        reason=Reason.WORKER_LOST,
        detail="its worker stopped sending heartbeats or was replaced",
        failed_by=CHECK,
        now=now,
    )
