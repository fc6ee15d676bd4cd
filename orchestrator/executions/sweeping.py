"""The guarantee: what is overdue or lost ends, with nothing at work but the database."""

from __future__ import annotations

from datetime import datetime

from orchestrator.executions.attempts import end_all
from orchestrator.models import Execution
from orchestrator.models.executions import ExecutionQuerySet
from orchestrator.reasons import Reason
from orchestrator.state_machine import ExecutionStatus

MONITOR = "execution_timeout_monitor"


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
        kind: end_all(overdue, reason=reason, detail=detail, failed_by=MONITOR, now=now)
        for kind, overdue, reason, detail in kinds
    }
