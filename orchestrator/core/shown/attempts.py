"""The attempts of an execution as stretches of time: it waits, is in a queue, runs.

The stretches of all attempts follow one another without a gap from the acceptance to the end, or to
now, so that their sums are the times that the execution itself has.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from orchestrator.core.models import Execution, ExecutionEvent, WorkerEvent
from orchestrator.core.models.execution_sets import STARTED
from orchestrator.core.states import TERMINAL, ExecutionStatus

LIVES_MAX = 500
"""Registrations of workers that are read to say in which of its lives one claimed an attempt."""


class Stage(enum.StrEnum):
    """The activity of an execution for a stretch of time."""

    WAITS = "waits"
    """For a slot, a limit, or the time of its next attempt."""
    QUEUED = "queued"
    """In the queue of its worker."""
    RUNS = "runs"


@dataclass(frozen=True)
class Stretch:
    """A stage of an attempt."""

    stage: Stage
    start: datetime
    end: datetime

    @property
    def seconds(self) -> float:
        return (self.end - self.start).total_seconds()


@dataclass
class Attempt:
    """One attempt, with the wait before it."""

    number: int | None = None
    """None while it waits for its next one, or if it ended without another one."""
    worker: str = ""
    """The worker that claimed it; empty if none did."""
    life: int | None = None
    claimed_at: datetime | None = None
    stretches: list[Stretch] = field(default_factory=list)
    ended_by: str = ""
    """The event of its end; empty while it goes on."""
    reason: str = ""

    def seconds(self, stage: Stage) -> float:
        """The time that it spent in a stage."""
        return sum(each.seconds for each in self.stretches if each.stage is stage)


def attempts(
    execution: Execution, events: Iterable[ExecutionEvent], now: datetime
) -> list[Attempt]:
    """The attempts of an execution, the first one first.

    `events`: its whole history, oldest first.
    """
    found = [Attempt()]
    status, since = ExecutionStatus.REQUESTED, execution.created_at
    for event in events:
        _spend(found[-1], status, since, event.at)
        status, since = ExecutionStatus(event.to_status), event.at
        latest = found[-1]
        if event.event == "schedule":
            latest.number = event.attempt
        elif event.event == "claim":
            latest.worker, latest.claimed_at = event.actor, event.at
        elif status is ExecutionStatus.REQUESTED or status in TERMINAL:
            latest.ended_by, latest.reason = event.event, event.reason
            if status is ExecutionStatus.REQUESTED:
                found.append(Attempt())
    if status not in TERMINAL:
        _spend(found[-1], status, since, max(since, now))
    _add_the_latest_worker(execution, found)
    return found


def _spend(attempt: Attempt, status: ExecutionStatus, start: datetime, end: datetime) -> None:
    """Add a stretch, or lengthen the last one of the same stage."""
    stage = _stage(status)
    last = attempt.stretches[-1] if attempt.stretches else None
    if last is not None and last.stage is stage:
        attempt.stretches[-1] = Stretch(stage, last.start, end)
    else:
        attempt.stretches.append(Stretch(stage, start, end))


def _stage(status: ExecutionStatus) -> Stage:
    if status in STARTED:
        return Stage.RUNS
    return Stage.QUEUED if status is ExecutionStatus.SCHEDULED else Stage.WAITS


def _add_the_latest_worker(execution: Execution, found: Sequence[Attempt]) -> None:
    """The row knows the worker of its latest attempt, claimed or not."""
    for each in found:
        if each.number is not None and each.number == execution.attempt:
            each.worker = each.worker or execution.worker_name or ""
            each.life = execution.worker_incarnation if each.claimed_at else None


def add_lives(found: Sequence[Attempt]) -> None:
    """Add in which of its lives a worker claimed each of the earlier attempts."""
    unknown = [each for each in found if each.life is None and each.claimed_at is not None]
    if not unknown:
        return
    rows = WorkerEvent.objects.filter(
        worker__name__in={each.worker for each in unknown},
        kind=WorkerEvent.Kind.REGISTERED,
        at__lte=max(each.claimed_at for each in unknown if each.claimed_at),
    )
    lives = list(rows.order_by("-pk").values_list("worker__name", "at", "incarnation")[:LIVES_MAX])
    for each in unknown:
        of_worker = (
            life
            for name, at, life in lives
            if name == each.worker and each.claimed_at and at <= each.claimed_at
        )
        each.life = next(of_worker, None)
