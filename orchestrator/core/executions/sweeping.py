"""The guarantee: overdue and lost executions end, even if only the database works."""

from __future__ import annotations

from datetime import datetime
from functools import partial

from django.db.models import F

from orchestrator.core import database, fleet
from orchestrator.core.executions.attempts import End, end_all, end_attempts
from orchestrator.core.executions.unclaimed import end_or_return
from orchestrator.core.models import Execution
from orchestrator.core.models.executions import ExecutionQuerySet
from orchestrator.core.reasons import Reason
from orchestrator.core.states import ExecutionStatus

MONITOR = "execution_timeout_monitor"


def bring_forward(*, now: datetime) -> int:
    """Undo what a clock that was set back since did to open executions; returns how many pauses
    are over.

    What waits for a time that came from it is due: nobody knows how much of the pause is left, and
    an early start does no harm. What was accepted at a time that has yet to come was accepted now:
    otherwise its deadline would come later by as much as the clock was set back.
    """
    Execution.objects.accepted_by_a_later_clock(now).update_unheld(
        created_at=now, deadline_at=now + (F("deadline_at") - F("created_at"))
    )
    return Execution.objects.paused_by_a_later_clock(now).update_unheld(next_retry_at=now)


def sweep(*, now: datetime) -> dict[str, int]:
    """End every attempt whose due time has passed; returns how many, by kind.

    This keeps the promise when messages, workers or beat are gone: it needs only the database. If
    one kind fails, the others still end; its error is raised after all had their turn.

    While the clock cannot be trusted, as just after it was set, only deadlines count: they are
    promised by the database's clock. Workers need one staleness window to write the other due times
    again.
    """
    if fleet.clock_is_trusted(now):
        overdue_to_start = Execution.objects.overdue_to_start(now)
        overdue_to_end = Execution.objects.overdue_to_end(now)
    else:
        overdue_to_start = Execution.objects.none()
        overdue_to_end = Execution.objects.overdue_by_deadline(now)
    kinds: list[tuple[str, ExecutionQuerySet, Reason, str, End]] = [
        (
            "deadline_passed",
            Execution.objects.past_deadline(now),
            Reason.DEADLINE_PASSED,
            "its deadline passed before it could start",
            end_attempts,
        ),
        (
            "not_started",
            overdue_to_start,
            Reason.SCHEDULED_TIMEOUT,
            "its worker did not claim it before start_by",
            end_or_return,
        ),
        (
            "not_ended",
            overdue_to_end.filter(status=ExecutionStatus.RUNNING),
            Reason.RUN_DEADLINE_PASSED,
            "its worker reported no end before run_deadline_at",
            end_attempts,
        ),
        (
            "cancel_unconfirmed",
            overdue_to_end.filter(status=ExecutionStatus.CANCELING),
            Reason.CANCEL_UNCONFIRMED,
            "its worker did not confirm in time that the action was stopped",
            end_attempts,
        ),
    ]
    return database.carry_out_each(
        {
            kind: partial(
                end_all,
                overdue,
                reason=reason,
                detail=detail,
                failed_by=MONITOR,
                now=now,
                end=end,
            )
            for kind, overdue, reason, detail, end in kinds
        }
    )
