"""What a life of a worker holds by the database's word, for the worker to compare with its own."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime

from django.db import transaction

from orchestrator.core.executions.attempts import end_attempts, give_back
from orchestrator.core.models import Execution
from orchestrator.core.models.claiming import AttemptKey
from orchestrator.core.models.executions import ExecutionQuerySet
from orchestrator.core.reasons import Reason
from orchestrator.core.states import ExecutionStatus


def started(*, worker_id: int, incarnation: int) -> list[Execution]:
    """All that this life of this worker has claimed and that has not ended: what it runs, and what
    it has to stop. Only what `workers.audit` compares is read."""
    rows = Execution.objects.started_by(worker_id=worker_id, incarnation=incarnation)
    return list(rows.only("status", "attempt", "run_deadline_at"))


def still_offered(
    attempts: Collection[AttemptKey], *, worker_id: int, incarnation: int, now: datetime
) -> set[AttemptKey]:
    """Which of these attempts, whose claim was not granted, could be claimed all the same: another
    transaction held their rows at that moment."""
    rows = Execution.objects.offered_to(worker_id=worker_id, incarnation=incarnation, now=now)
    return _keys(rows, attempts)


def still_started(
    attempts: Collection[AttemptKey], *, worker_id: int, incarnation: int
) -> set[AttemptKey]:
    """Which of these attempts, whose end was not recorded, still wait for it: another transaction
    held their rows at that moment."""
    rows = Execution.objects.started_by(worker_id=worker_id, incarnation=incarnation)
    return _keys(rows, attempts)


def disown(
    attempts: Collection[AttemptKey],
    *,
    worker_id: int,
    incarnation: int,
    now: datetime,
    actor: str,
) -> int:
    """Return what was claimed for this life of this worker, and never reached it; returns how many.

    It did not begin, which the worker knows for sure, so it counts for no policy. What is being
    cancelled is over with that.
    """
    rows = Execution.objects.started_by(worker_id=worker_id, incarnation=incarnation)
    wanted, ids = set(attempts), {id for id, _ in attempts}
    found = rows.filter(pk__in=ids).without_contents().with_actions()
    lost = [execution for execution in found if execution.key in wanted]
    returned = give_back(
        unstarted=[e for e in lost if e.status == ExecutionStatus.RUNNING], now=now, actor=actor
    )
    cancelled = end_attempts(
        [e for e in lost if e.status == ExecutionStatus.CANCELING],
        reason=Reason.CANCELLED_RUNNING,
        detail="cancelled before its claim had reached the worker",
        failed_by="worker",
        now=now,
    )
    return len(returned) + len(cancelled)


def set_run_deadlines(
    deadlines: Mapping[AttemptKey, datetime], *, worker_id: int, incarnation: int
) -> int:
    """Move when these attempts are given up, as their worker has counted; returns how many.

    Those that another transaction holds are passed over: the next heartbeat comes.
    """
    rows = Execution.objects.started_by(worker_id=worker_id, incarnation=incarnation)
    moved = 0
    with transaction.atomic():
        running = rows.filter(status=ExecutionStatus.RUNNING, pk__in={id for id, _ in deadlines})
        for execution in running.only("attempt").locked_for_batch(len(deadlines)):
            if execution.key in deadlines:
                moved += rows.filter(
                    pk=execution.pk, attempt=execution.attempt, status=ExecutionStatus.RUNNING
                ).update(run_deadline_at=deadlines[execution.key])
    return moved


def _keys(rows: ExecutionQuerySet, attempts: Collection[AttemptKey]) -> set[AttemptKey]:
    wanted = set(attempts)
    return wanted & set(rows.filter(pk__in={id for id, _ in wanted}).values_list("pk", "attempt"))
