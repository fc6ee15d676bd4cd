"""The guarantee: what is overdue or lost ends, with nothing at work but the database."""

from __future__ import annotations

from datetime import datetime

from django.conf import settings
from django.db.models import F, Q

from orchestrator.executions.attempts import end_attempts
from orchestrator.models import Execution
from orchestrator.models.executions import ExecutionQuerySet
from orchestrator.reasons import Reason
from orchestrator.state_machine import ExecutionStatus


def sweep(*, now: datetime) -> dict[str, int]:
    """End every attempt whose due time has passed; returns how many, by kind.

    This is what holds the promise when messages, workers or beat are gone: it needs nothing
    but the database.
    """
    kinds: list[tuple[str, ExecutionQuerySet, Reason, str]] = [
        (
            "deadline_passed",
            Execution.objects.past_deadline(now),
            Reason.DEADLINE_PASSED,
            "its deadline passed before it could start",
        ),
        (
            "not_started",
            Execution.objects.overdue_to_start(now),
            Reason.SCHEDULED_TIMEOUT,
            "its worker did not claim it before start_by",
        ),
        (
            "not_ended",
            Execution.objects.overdue_to_end(now).filter(status=ExecutionStatus.RUNNING),
            Reason.RUN_DEADLINE_PASSED,
            "its worker reported no end before run_deadline_at",
        ),
        (
            "cancel_unconfirmed",
            Execution.objects.overdue_to_end(now).filter(status=ExecutionStatus.CANCELING),
            Reason.CANCEL_UNCONFIRMED,
            "its worker did not confirm in time that the action was stopped",
        ),
    ]
    return {
        kind: _end_all(overdue, reason, detail, failed_by="execution_timeout_monitor", now=now)
        for kind, overdue, reason, detail in kinds
    }


def settle_lost(*, now: datetime) -> int:
    """End what started on workers that are gone: silent, stopped, or in a newer life.

    A worker that left in good order has finished what it ran, so what it still holds is lost.
    """
    gone = Q(worker__gone_at__isnull=False) | ~Q(worker_incarnation=F("worker__incarnation"))
    started = Execution.objects.open().filter(
        status__in=[ExecutionStatus.RUNNING, ExecutionStatus.CANCELING]
    )
    return _end_all(
        started.filter(gone),
        Reason.WORKER_LOST,
        "its worker stopped sending heartbeats or was replaced",
        failed_by="heartbeat_staleness_check",
        now=now,
    )


def _end_all(
    overdue: ExecutionQuerySet, reason: Reason, detail: str, *, failed_by: str, now: datetime
) -> int:
    """End a query's executions batch by batch. A batch in which nothing moved ends the loop:
    others are at work on the same rows, or will be asked again at the next tick."""
    total = 0
    size: int = settings.MUSTER.batch_size
    while True:
        batch = overdue.without_contents()[:size].with_actions()
        ended = end_attempts(batch, reason=reason, detail=detail, failed_by=failed_by, now=now)
        total += len(ended)
        if len(batch) < size or not ended:
            return total
