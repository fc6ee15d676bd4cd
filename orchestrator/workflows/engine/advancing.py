"""`advance`: move a task as far as it can go now. Safe to call at any time, from anywhere."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Count, Min

from orchestrator.core.models import DLQEntry
from orchestrator.core.models.execution_sets import SUSPECT_FROM
from orchestrator.core.reasons import WITHOUT_A_WORKER
from orchestrator.workflows.engine.creation import create_initial, cycle_of
from orchestrator.workflows.engine.enqueuing import enqueue
from orchestrator.workflows.engine.investigating import investigate
from orchestrator.workflows.engine.settling import settle
from orchestrator.workflows.engine.turn import Turn, Turns, begin, begin_free, move_tasks
from orchestrator.workflows.models import Task
from orchestrator.workflows.states import StepState, TaskState
from orchestrator.workflows.states.steps import FAILED, IN_FLIGHT
from orchestrator.workflows.task_templates.definitions import BATCH_WORKER, CONTINUE_ON_FAILURE

T = TaskState

STUCK = (TaskState.BLOCKED_BY_FAILURES, TaskState.ERROR)
"""Only a repair leads out of these states."""

_GO_ON = ("enqueue_steps", "process_steps")
_AFTER_WORK: Mapping[TaskState, tuple[str, ...]] = {
    T.STEPS_IN_PROCESS: ("evaluate", *_GO_ON),
    T.WAITING_FOR_DEPENDENCIES: ("evaluate", "wait_for_dependencies"),
    T.WAITING_FOR_RETRY: ("evaluate", "wait_for_retry"),
    T.BLOCKED_BY_FAILURES: ("evaluate", "block"),
    T.COMPLETE: ("evaluate", "complete"),
    T.ERROR: ("evaluate", "enqueue_steps", "fail"),
}
_AFTER_A_HALT: Mapping[TaskState, tuple[str, ...]] = {
    T.STEPS_IN_PROCESS: _GO_ON,
    T.WAITING_FOR_DEPENDENCIES: (*_GO_ON, "evaluate", "wait_for_dependencies"),
    T.WAITING_FOR_RETRY: (*_GO_ON, "wait_for_retry"),
    T.BLOCKED_BY_FAILURES: (*_GO_ON, "evaluate", "block"),
    T.COMPLETE: (*_GO_ON, "evaluate", "complete"),
    T.ERROR: ("enqueue_steps", "fail"),
}
WAYS: Mapping[TaskState, Mapping[TaskState, tuple[str, ...]]] = {
    T.INITIALIZING: {
        T.STEPS_IN_PROCESS: _GO_ON,
        T.WAITING_FOR_DEPENDENCIES: ("wait_for_dependencies",),
        T.WAITING_FOR_RETRY: (*_GO_ON, "wait_for_retry"),
        T.BLOCKED_BY_FAILURES: ("wait_for_dependencies", "evaluate", "block"),
        T.COMPLETE: ("complete",),
        T.ERROR: ("enqueue_steps", "fail"),
    },
    T.STEPS_IN_PROCESS: {**_AFTER_WORK, T.WAITING_FOR_RETRY: ("wait_for_retry",)},
    T.WAITING_FOR_DEPENDENCIES: _AFTER_WORK,
    T.WAITING_FOR_RETRY: _AFTER_A_HALT,
    T.BLOCKED_BY_FAILURES: {**_AFTER_A_HALT, T.ERROR: ("fail",)},
    T.ERROR: _AFTER_A_HALT,
}
"""The events that lead from one state to another, as few as the table of transitions allows."""


def advance(task_id: UUID, *, now: datetime, actor: str) -> TaskState:
    """Settle ended steps, request ready ones, and move the task, all or nothing; returns its state.

    Idempotent: with nothing new it changes nothing. Concurrent calls take turns. A task that is
    quarantined is left alone. Raises UnknownTask.
    """
    with transaction.atomic():
        turns = begin(task_id, now=now, actor=actor)
        take(turns)
    return TaskState(turns.only.task.state)


def advance_free(task_ids: Collection[UUID], *, now: datetime, actor: str) -> set[UUID]:
    """Advance those of the tasks that no other session holds, all or none; returns them."""
    with transaction.atomic():
        turns = begin_free(task_ids, now=now, actor=actor)
        take(turns)
    return set(turns.by_task)


def take(turns: Turns, *, repaired: bool = False) -> None:
    """Do the work of `advance` when the caller already holds the locks of the tasks.

    1. A new task gets its first steps.
    2. Settle the steps whose executions have ended; that may create others.
    3. Request executions for the steps that are ready.
    4. Derive each task's state from the states of its steps.

    `repaired`: an operator has just changed them, so that they may go on.
    """
    turns = turns.those(t for t in turns if not (t.task.is_terminal or t.task.is_quarantined))
    for turn in turns:
        if turn.state is TaskState.PENDING:
            create_initial(turn)
            turn.events.append("initialize")
    settle(turns)
    # steps that still end are settled, and nothing new begins
    stuck = [turn for turn in turns if turn.state in STUCK and not repaired]
    _write((turn, {}) for turn in stuck)
    going = turns.those(turn for turn in turns if turn not in stuck)
    enqueue(going.those(turn for turn in going if not turn.problem))
    _conclude(going)


@dataclass(frozen=True)
class Standing:
    """The numbers of a task's steps in each situation."""

    in_flight: int
    pending: int
    waiting: int
    failed: int
    """In error or cancelled, and not tolerated by a batch."""
    retry_at: datetime | None


def _look(turns: Turns) -> dict[UUID, Standing]:
    """Count the steps of each task with one query; one more for each task with errors that a batch
    may tolerate."""
    counts: dict[UUID, dict[str, tuple[int, datetime | None]]] = {id: {} for id in turns.by_task}
    rows = turns.steps.order_by().values_list("task_id", "state")
    for id, state, *found in rows.annotate(Count("pk"), Min("next_retry_at")):
        counts[id][state] = tuple(found)
    return {turn.task.pk: _standing(turn, counts[turn.task.pk]) for turn in turns}


def _standing(turn: Turn, counts: Mapping[str, tuple[int, datetime | None]]) -> Standing:
    def number(*states: StepState) -> int:
        return sum(counts.get(state, (0, None))[0] for state in states)

    failed = number(*FAILED)
    if failed and any(s.kind == BATCH_WORKER for s in turn.definition.steps.values()):
        tolerated = turn.steps.filter(
            state__in=sorted(FAILED),
            kind=BATCH_WORKER,
            created_by__batch__failure_strategy=CONTINUE_ON_FAILURE,
        )
        failed -= tolerated.count()
    return Standing(
        in_flight=number(*IN_FLIGHT),
        pending=number(StepState.PENDING),
        waiting=number(StepState.WAITING_FOR_RETRY),
        failed=failed,
        retry_at=counts.get(StepState.WAITING_FOR_RETRY, (0, None))[1],
    )


def _conclude(turns: Turns) -> None:
    """Move each task to the state that its steps imply, and open an investigation if it is
    stuck."""
    moving: dict[tuple[str, ...], list[tuple[Turn, dict[str, Any]]]] = defaultdict(list)
    staying: list[tuple[Turn, dict[str, Any]]] = []
    blocked, erring = [], []
    for task_id, standing in (_look(turns) if turns else {}).items():
        turn = turns.by_task[task_id]
        state, goal = turn.state, _goal(turn, standing)
        if goal is not state or turn.enqueued:
            turn.events += WAYS[state][goal]
        if not turn.events:
            staying.append((turn, _progress(turn, standing)))
            continue
        clock = turn.now
        if goal is TaskState.WAITING_FOR_RETRY and standing.retry_at is not None:
            clock = max(clock, standing.retry_at)
        values = {"next_retry_at": standing.retry_at, "clock_started_at": clock}
        moving[(*turn.events, turn.problem)].append((turn, values))
        if goal is TaskState.BLOCKED_BY_FAILURES and state is not goal:
            blocked.append(turn)
        if goal is TaskState.ERROR:
            erring.append(turn)
    _write(staying)
    for (*_, problem), group in moving.items():
        move_tasks(group, reason=problem)
    for turn in blocked:
        _investigate(turn, *_why_blocked(turn))
    for turn in erring:
        _investigate(turn, DLQEntry.Reason.DEPENDENCY_CYCLE_DETECTED, turn.problem)


def _goal(turn: Turn, standing: Standing) -> TaskState:
    state, settled, enqueued = turn.state, turn.settled, turn.enqueued
    if not turn.problem and not (enqueued or standing.in_flight or standing.waiting):
        if not standing.pending and not standing.failed:
            return TaskState.COMPLETE
        if not standing.failed:
            turn.problem = cycle_of(turn)
    if turn.problem:
        return TaskState.ERROR
    if enqueued:
        return TaskState.STEPS_IN_PROCESS
    if standing.in_flight:
        if state is TaskState.STEPS_IN_PROCESS and settled and standing.pending:
            return TaskState.WAITING_FOR_DEPENDENCIES
        if state in (TaskState.STEPS_IN_PROCESS, TaskState.WAITING_FOR_DEPENDENCIES):
            return state
        return TaskState.STEPS_IN_PROCESS
    return TaskState.WAITING_FOR_RETRY if standing.waiting else TaskState.BLOCKED_BY_FAILURES


def _progress(turn: Turn, standing: Standing) -> dict[str, Any]:
    """The changes of a task that keeps its state: its clock is restarted after progress, and it
    notes when retries are due."""
    values: dict[str, Any] = {}
    if turn.task.next_retry_at != standing.retry_at:
        values["next_retry_at"] = standing.retry_at
    if turn.settled:
        values["clock_started_at"] = turn.now
    return values


def _write(staying: Iterable[tuple[Turn, dict[str, Any]]]) -> None:
    """Write what changes besides the state; the try has come to its end, which a transition notes
    by itself. What is alike is written together."""
    groups: dict[tuple[tuple[str, Any], ...], list[UUID]] = defaultdict(list)
    for turn, values in staying:
        if turn.task.advance_tries is not None:
            values["advance_tries"] = None
        groups[tuple(values.items())].append(turn.task.pk)
    for alike, ids in groups.items():
        if alike:
            Task.objects.filter(pk__in=ids).update(**dict(alike))


def _why_blocked(turn: Turn) -> tuple[DLQEntry.Reason, str]:
    """The reason and the detail for an investigation: the cause, and the errors of the failed
    steps."""
    failed = turn.steps.filter(state=StepState.ERROR).order_by("pk").values_list("name", "error")
    errors = [(name, error or {}) for name, error in failed]
    detail = "; ".join(_summary(name, error) for name, error in errors[:5])
    if any(error.get("lost_workers", 0) >= SUSPECT_FROM for _, error in errors):
        return DLQEntry.Reason.POISON, detail
    if errors and all(error.get("reason") in WITHOUT_A_WORKER for _, error in errors):
        # their actions are not to blame: the fleet needs repair
        return DLQEntry.Reason.WORKER_UNAVAILABLE, detail
    if not errors:
        # an operator cancelled what is left: no attempt failed
        return DLQEntry.Reason.MANUAL_DLQ, _cancelled(turn)
    return DLQEntry.Reason.MAX_RETRIES_EXCEEDED, detail


def _cancelled(turn: Turn) -> str:
    """The first of the task's cancelled steps, in words."""
    names = list(
        turn.steps.filter(state=StepState.CANCELLED)
        .order_by("pk")
        .values_list("name", flat=True)[:5]
    )
    return f"cancelled by hand: {', '.join(names)}"


def _summary(name: str, error: dict[str, str]) -> str:
    return ": ".join(filter(None, (name, error.get("error"), error.get("message", "")[:200])))


def _investigate(turn: Turn, reason: DLQEntry.Reason, detail: str) -> None:
    investigate(turn.task, reason, detail, now=turn.now, actor=turn.actor)
