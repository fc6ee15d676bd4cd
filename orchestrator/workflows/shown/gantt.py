"""The times at which the steps of a task waited and ran: a row for each step, a bar for each wait,
run and pause. In two queries, three if not all steps are shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from uuid import UUID

from orchestrator.core.states import ExecutionStatus
from orchestrator.workflows.models import Step, StepExecution, Task
from orchestrator.workflows.shown.steps import by_attention
from orchestrator.workflows.states import StepState

ROWS_LIMIT = 1_000
TRIES_LIMIT = 5_000
"""Executions that are read; the newest, if they are more."""

WAITS, RUNS, PAUSES = "waits", "runs", "pauses"


@dataclass(frozen=True, kw_only=True)
class Bar:
    """A time of a step. An execution waits for a slot, then runs; between two is a pause."""

    kind: str
    attempt: int
    begin: datetime
    end: datetime
    is_open: bool = False
    """It goes on: its end is now."""
    has_failed: bool = False
    execution_id: UUID | None = None

    @property
    def seconds(self) -> float:
        return (self.end - self.begin).total_seconds()


@dataclass(frozen=True, kw_only=True)
class Row:
    """A step with its bars, in the order of time."""

    name: str
    state: StepState
    bars: Sequence[Bar] = field(default_factory=tuple)

    def seconds(self, kind: str) -> float:
        """The time that it did this, in all attempts."""
        return sum(bar.seconds for bar in self.bars if bar.kind == kind)

    @property
    def attempts(self) -> int:
        return max((bar.attempt for bar in self.bars), default=0)


@dataclass(frozen=True, kw_only=True)
class Chart:
    """The rows, the first that began first, and the time that they span."""

    rows: Sequence[Row]
    begin: datetime
    end: datetime
    is_cut: bool = False
    """Not all steps are in it."""


@dataclass(frozen=True)
class _Try:
    execution_id: UUID
    status: str
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None


def of_task(task: Task, now: datetime) -> Chart:
    """The first of its steps, those that need attention before others if they are many."""
    steps = by_attention(Step.objects.filter(task=task)).values_list(
        "pk", "name", "state", "next_retry_at"
    )
    found = list(steps[: ROWS_LIMIT + 1])
    tries = _tries(task, [pk for pk, *_ in found[:ROWS_LIMIT]], is_cut=len(found) > ROWS_LIMIT)
    rows = [
        Row(name=name, state=StepState(state), bars=_bars(tries.get(pk, ()), state, now))
        for pk, name, state, _ in sorted(found[:ROWS_LIMIT])
    ]
    rows.sort(key=lambda row: (not row.bars, row.bars[0].begin if row.bars else now))
    ends = [bar.end for row in rows for bar in row.bars]
    return Chart(
        rows=rows,
        begin=min([task.created_at, *(row.bars[0].begin for row in rows if row.bars)]),
        # nothing is gained by an empty night after which somebody repairs it
        end=max(ends, default=task.ended_at or now),
        is_cut=len(found) > ROWS_LIMIT,
    )


def _tries(task: Task, ids: Sequence[UUID], *, is_cut: bool) -> Mapping[UUID, list[_Try]]:
    rows = StepExecution.objects.filter(step__task=task)
    if is_cut:
        rows = rows.filter(step__in=ids)
    names = ("status", "created_at", "started_at", "ended_at")
    columns = ("step_id", "fence", "execution_id", *(f"execution__{name}" for name in names))
    tries: dict[UUID, list[_Try]] = {}
    newest = list(rows.order_by("-execution_id").values_list(*columns)[:TRIES_LIMIT])
    for step_id, _, *values in sorted(newest, key=lambda row: row[:2]):
        tries.setdefault(step_id, []).append(_Try(*values))
    return tries


def _bars(tries: Sequence[_Try], state: str, now: datetime) -> list[Bar]:
    bars = [bar for number, each in enumerate(tries, 1) for bar in _of_try(each, number, now)]
    for number, (before, after) in enumerate(pairwise(tries), 2):
        if before.ended_at is not None and before.ended_at < after.created_at:
            bars.append(_pause(number, before.ended_at, after.created_at))
    last = tries[-1] if tries else None
    if state == StepState.WAITING_FOR_RETRY and last is not None and last.ended_at is not None:
        bars.append(_pause(len(tries) + 1, last.ended_at, max(now, last.ended_at), is_open=True))
    return sorted(bars, key=lambda bar: (bar.begin, bar.end))


def _pause(attempt: int, begin: datetime, end: datetime, *, is_open: bool = False) -> Bar:
    return Bar(kind=PAUSES, attempt=attempt, begin=begin, end=end, is_open=is_open)


def _of_try(each: _Try, number: int, now: datetime) -> list[Bar]:
    """The wait for a slot, and the run; the latter is missing if it ended before."""
    has_failed = each.ended_at is not None and each.status != ExecutionStatus.COMPLETED
    until = each.started_at or each.ended_at or max(now, each.created_at)
    waits = Bar(
        kind=WAITS,
        attempt=number,
        begin=each.created_at,
        end=until,
        is_open=each.started_at is None and each.ended_at is None,
        has_failed=has_failed and each.started_at is None,
        execution_id=each.execution_id,
    )
    if each.started_at is None:
        return [waits]
    runs = Bar(
        kind=RUNS,
        attempt=number,
        begin=each.started_at,
        end=each.ended_at or max(now, each.started_at),
        is_open=each.ended_at is None,
        has_failed=has_failed,
        execution_id=each.execution_id,
    )
    return [waits, runs]
