"""A task as a whole, by an operator: cancel it, resolve it as it is, or have it tried again."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from uuid import UUID

from django.db import transaction

from orchestrator.core import database
from orchestrator.core.errors import Conflict
from orchestrator.core.state_machine import Move
from orchestrator.inquiries import answering
from orchestrator.workflows.engine.repairs import check_reason, stop
from orchestrator.workflows.engine.turn import Turns, UnknownTask, begin
from orchestrator.workflows.models import StepExecution, Task, TransitionRecord
from orchestrator.workflows.states import STEPS, TASKS
from orchestrator.workflows.states.steps import IN_FLIGHT


class TaskIsFinal(Conflict):
    """The task is over and cannot be changed."""

    kind = "already-over"


class TaskIsNotBlocked(Conflict):
    """Only a task that is blocked by failures can be resolved."""

    kind = "not-blocked"


class TaskIsNotInError(Conflict):
    """Only a task in error can be released."""

    kind = "not-in-error"


def cancel(task_id: UUID, *, reason: str, actor: str, now: datetime) -> Task:
    """Cancel the task, its steps and their executions; returns the task as it is now.

    Running executions are cancelled, and their end no longer counts for the task. Raises
    UnknownTask, and TaskIsFinal if the task is over.
    """
    with transaction.atomic():
        turns = _begin_open(task_id, now=now, actor=actor)
        _end(turns, "cancel", reason)
    return turns.only.task


def cancel_for_pack(ids: Sequence[str], *, by: str, now: datetime) -> None:
    """Cancel these tasks, as a pack that they need is being removed."""
    for id in ids:
        with suppress(TaskIsFinal, UnknownTask):
            cancel(UUID(id), reason="a pack that it needs is being removed", actor=by, now=now)


def resolve(task_id: UUID, *, reason: str, actor: str, now: datetime) -> Task:
    """Close a task that is blocked by failures, because its work was done elsewhere.

    Its open steps are cancelled. Raises UnknownTask, ReasonMissing, TaskIsFinal and
    TaskIsNotBlocked.
    """
    check_reason(reason)
    with transaction.atomic():
        turns = _begin_open(task_id, now=now, actor=actor)
        task = turns.only.task
        if not TASKS.allows("resolve", task.state):
            raise TaskIsNotBlocked(f"Task {task_id} is {task.state}, not blocked_by_failures")
        _end(turns, "resolve", reason)
    return task


def release(task_id: UUID, *, reason: str, actor: str, now: datetime) -> Task:
    """Have a task that is in error advanced again by an executor, as it is; returns the task.

    Raises UnknownTask, ReasonMissing, TaskIsFinal and TaskIsNotInError.
    """
    check_reason(reason)
    with transaction.atomic():
        turn = _begin_open(task_id, now=now, actor=actor).only
        if not TASKS.allows("release", turn.task.state):
            raise TaskIsNotInError(f"Task {task_id} is {turn.task.state}, not error")
        turn.release(reason)
    return turn.task


def _begin_open(task_id: UUID, *, now: datetime, actor: str) -> Turns:
    """Lock the task for a change by hand. Raises UnknownTask, and TaskIsFinal if it is over."""
    database.hold_briefly()
    turns = begin(task_id, now=now, actor=actor)
    if turns.only.task.is_terminal:
        state = turns.only.task.state
        raise TaskIsFinal(f"Task {task_id} is {state}, which is final{_by_whom(task_id)}")
    return turns


def _by_whom(task_id: UUID) -> str:
    """The actor who ended the task, in words, for whoever comes second."""
    ends = TransitionRecord.objects.filter(task=task_id, step=None).order_by("-pk")
    last = ends.first()
    return f": {last.event} by {last.actor} at {last.at:%Y-%m-%d %H:%M:%S} UTC" if last else ""


def _end(turns: Turns, event: str, reason: str) -> None:
    steps = turns.steps.exclude(state__in=sorted(STEPS.terminal)).without_contents()
    moves, running = [], []
    for step in steps:
        moves.append(Move(step.pk, step.state, step.fence))
        if step.state in IN_FLIGHT and step.execution_id is not None:
            running.append(step.execution_id)
    turns.move_steps("cancel", moves, reason=reason)
    stop(running, now=turns.now, actor=turns.actor)
    asked_by = StepExecution.objects.filter(step__task__in=list(turns.by_task)).order_by()
    answering.cancel_asked_by(
        asked_by.values("execution_id"),
        now=turns.now,
        actor=turns.actor,
        reason="its task has ended",
    )
    turns.only.events.append(event)
    turns.only.move(reason=reason)
