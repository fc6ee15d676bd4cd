"""Executions that a life of a worker holds according to the database, for the worker to compare."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime

from django.db import transaction

from orchestrator.core import database
from orchestrator.core.executions.attempts import end_attempts, give_back
from orchestrator.core.models import Execution, ExecutionEvent
from orchestrator.core.models.executions import ExecutionQuerySet
from orchestrator.core.reasons import Reason
from orchestrator.core.states import AttemptKey, ExecutionStatus


def started(*, worker_id: int, incarnation: int) -> list[Execution]:
    """Executions that this life of this worker has claimed and that have not ended: those that it
    runs, and those that it must stop. Reads only the columns that `workers.audit` compares."""
    rows = Execution.objects.started_by(worker_id=worker_id, incarnation=incarnation)
    return list(rows.only("status", "attempt", "run_deadline_at"))


def to_stop(
    attempts: Collection[AttemptKey],
    *,
    claimed: Collection[AttemptKey],
    worker_id: int,
    incarnation: int,
) -> set[AttemptKey]:
    """Those of these attempts that somebody has cancelled, and those of the claimed ones that are
    over.

    An attempt may be over although its worker counts otherwise: the database's clock was set, so
    that its deadline has passed. They are found by their ids, as no index leads to the few that are
    being cancelled.
    """
    wanted = {*attempts, *claimed}
    if not wanted:
        return set()
    rows = Execution.objects.started_by(worker_id=worker_id, incarnation=incarnation)
    found = rows.filter(pk__in={id for id, _ in wanted}).values_list("pk", "attempt", "status")
    statuses = {(id, attempt): status for id, attempt, status in found}
    cancelled = {key for key, status in statuses.items() if status == ExecutionStatus.CANCELING}
    return (wanted & cancelled) | (set(claimed) - statuses.keys())


def still_offered(
    attempts: Collection[AttemptKey], *, worker_id: int, incarnation: int, now: datetime
) -> set[AttemptKey]:
    """Those of these attempts whose claim was not granted, only because another transaction held
    their rows at that moment, and that can still be claimed."""
    rows = Execution.objects.offered_to(worker_id=worker_id, incarnation=incarnation, now=now)
    return _keys(rows, attempts)


def still_started(
    attempts: Collection[AttemptKey], *, worker_id: int, incarnation: int
) -> set[AttemptKey]:
    """Those of these attempts whose end was not recorded, only because another transaction held
    their rows at that moment, and that still wait for it."""
    rows = Execution.objects.started_by(worker_id=worker_id, incarnation=incarnation)
    return _keys(rows, attempts)


def recorded(attempts: Collection[AttemptKey], *, worker: str) -> set[AttemptKey]:
    """Those of these attempts whose end this worker has recorded before: the connection broke, and
    it did not hear that it was."""
    wanted = set(attempts)
    moves = ExecutionEvent.objects.filter(execution__in={id for id, _ in wanted}, actor=worker)
    ends = moves.exclude(event="claim").order_by()
    return wanted & set(ends.values_list("execution_id", "attempt"))


def disown(
    attempts: Collection[AttemptKey],
    *,
    worker_id: int,
    incarnation: int,
    now: datetime,
    actor: str,
) -> int:
    """Put back what was claimed for this life of this worker and never reached it; returns how
    many.

    The worker knows for sure that it never began, so no policy counts it. An execution that is
    being cancelled ends as cancelled.
    """
    rows = Execution.objects.started_by(worker_id=worker_id, incarnation=incarnation)
    wanted, ids = set(attempts), {id for id, _ in attempts}
    candidates = rows.filter(pk__in=ids).without_contents().with_actions()
    lost = [execution for execution in candidates if execution.key in wanted]
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
    """Set the times at which these attempts are given up, as their worker computed them; returns
    how many.

    Those that another transaction holds are skipped: the next heartbeat tries again.
    """
    rows = Execution.objects.started_by(worker_id=worker_id, incarnation=incarnation)
    moved = 0
    with transaction.atomic():
        database.hold_briefly()
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
