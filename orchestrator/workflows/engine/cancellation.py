"""A task as a whole, by an operator: cancel it, resolve it as it is, or have it tried again."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from django.db import transaction

from orchestrator.core import database
from orchestrator.core.errors import Conflict
from orchestrator.core.state_machine import Move
from orchestrator.workflows.engine.repairs import check_reason, stop
from orchestrator.workflows.engine.turn import Turns, begin
from orchestrator.workflows.models import Task
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
        raise TaskIsFinal(f"Task {task_id} is {turns.only.task.state}, which is final")
    return turns


def _end(turns: Turns, event: str, reason: str) -> None:
    steps = turns.steps.exclude(state__in=sorted(STEPS.terminal)).without_contents()
    moves, running = [], []
    for step in steps:
        moves.append(Move(step.pk, step.state, step.fence))
        if step.state in IN_FLIGHT and step.execution_id is not None:
            running.append(step.execution_id)
    turns.move_steps("cancel", moves, reason=reason)
    stop(running, now=turns.now, actor=turns.actor)
    turns.only.events.append(event)
    turns.only.move(reason=reason)
