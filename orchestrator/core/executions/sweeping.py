"""The guarantee: overdue and lost executions end, even if only the database works."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from django.db.models import F

from orchestrator.core import clock, database, fleet
from orchestrator.core.executions.attempts import End, end_all, end_attempts
from orchestrator.core.executions.unclaimed import end_or_return
from orchestrator.core.models import Execution, Tick
from orchestrator.core.models.executions import ExecutionQuerySet
from orchestrator.core.reasons import Reason
from orchestrator.core.states import ExecutionStatus

MONITOR = "execution_timeout_monitor"


def bring_forward(*, now: datetime) -> int:
    """Undo what a clock that was set back since did to open executions; returns how many pauses
    are over.

    What waits for a time that came from it is due: nobody knows how much of the pause is left, and
    an early start does no harm. What was accepted at a time that has yet to come was accepted now:
    otherwise its deadline would come later by as much as the clock was set back. Rows that another
    session holds are tried again for as long as it does.
    """
    accepted = Execution.objects.accepted_by_a_later_clock(now)
    accepted.update_unheld(created_at=now, deadline_at=now + (F("deadline_at") - F("created_at")))
    paused = Execution.objects.paused_by_a_later_clock(now)
    number = len(paused.update_unheld(next_retry_at=now))
    if accepted.exists() or paused.exists():
        Tick.objects.go_on_after_set_back(now=now)
    return number


@dataclass(frozen=True)
class Kind:
    """Executions that are overdue in one way, and how they end."""

    overdue: Callable[[datetime], ExecutionQuerySet]
    reason: Reason
    detail: str
    end: End = end_attempts


def sweep(*, now: datetime) -> dict[str, int]:
    """End every attempt whose due time has passed; returns how many, by kind.

    This keeps the promise when messages, workers or beat are gone: it needs only the database. If
    one kind fails, the others still end, each at its own time; its error is raised after all had
    their turn.
    """
    moment = clock.Running(now)
    return database.carry_out_each(
        {name: partial(_end_kind, kind, moment) for name, kind in KINDS.items()}
    )


def _end_kind(kind: Kind, moment: clock.Running) -> int:
    return end_all(
        kind.overdue(moment()),
        reason=kind.reason,
        detail=kind.detail,
        failed_by=MONITOR,
        moment=moment,
        end=kind.end,
    )


def _past_deadline(now: datetime) -> ExecutionQuerySet:
    return Execution.objects.past_deadline(now)


def _overdue_to_start(now: datetime) -> ExecutionQuerySet:
    """None while the clock cannot be trusted, as just after it was set: only deadlines count then,
    which are promised by the database's clock. Workers need one staleness window to write the other
    due times again."""
    executions = Execution.objects
    return executions.overdue_to_start(now) if fleet.clock_is_trusted(now) else executions.none()


def _overdue_to_end(now: datetime) -> ExecutionQuerySet:
    """While the clock cannot be trusted, as with the start, only by their deadlines."""
    executions = Execution.objects
    if fleet.clock_is_trusted(now):
        return executions.overdue_to_end(now)
    return executions.overdue_by_deadline(now)


KINDS: Mapping[str, Kind] = {
    "deadline_passed": Kind(
        _past_deadline, Reason.DEADLINE_PASSED, "its deadline passed before it could start"
    ),
    "not_started": Kind(
        _overdue_to_start,
        Reason.SCHEDULED_TIMEOUT,
        "its worker did not claim it before start_by",
        end_or_return,
    ),
    "not_ended": Kind(
        lambda now: _overdue_to_end(now).filter(status=ExecutionStatus.RUNNING),
        Reason.RUN_DEADLINE_PASSED,
        "its worker reported no end before run_deadline_at",
    ),
    "cancel_unconfirmed": Kind(
        lambda now: _overdue_to_end(now).filter(status=ExecutionStatus.CANCELING),
        Reason.CANCEL_UNCONFIRMED,
        "its worker did not confirm in time that the action was stopped",
    ),
}
