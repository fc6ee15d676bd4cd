"""The end of a task by an operator: cancelled, or resolved as it is."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from django.db import transaction

from orchestrator.core.errors import Conflict, MusterError
from orchestrator.core.state_machine import Move
from orchestrator.workflows.engine.repairs import stop
from orchestrator.workflows.engine.turn import Turn, begin
from orchestrator.workflows.models import Task
from orchestrator.workflows.states import STEPS, TASKS
from orchestrator.workflows.states.steps import IN_FLIGHT


class TaskIsFinal(Conflict):
    """The task is over and cannot be changed."""

    kind = "already-over"


class TaskIsNotBlocked(MusterError):
    """Only a task that is blocked by failures can be resolved."""


def cancel(task_id: UUID, *, reason: str, actor: str, now: datetime) -> Task:
    """Cancel the task, its steps and their executions; returns the task as it is now.

    Executions that run are told to stop, and their end no longer counts for the task. Raises
    UnknownTask, and TaskIsFinal if the task is over.
    """
    with transaction.atomic():
        turn = begin(task_id, now=now, actor=actor)
        if turn.task.is_terminal:
            raise TaskIsFinal(f"Task {task_id} is {turn.task.state}, which is final")
        _end(turn, "cancel", reason)
    return turn.task


def resolve(task_id: UUID, *, reason: str, actor: str, now: datetime) -> Task:
    """Close a task that is blocked by failures as it is: what had to be done was done elsewhere.

    Its open steps are cancelled. Raises UnknownTask, TaskIsFinal and TaskIsNotBlocked.
    """
    with transaction.atomic():
        turn = begin(task_id, now=now, actor=actor)
        if turn.task.is_terminal:
            raise TaskIsFinal(f"Task {task_id} is {turn.task.state}, which is final")
        if not TASKS.allows("resolve", turn.task.state):
            raise TaskIsNotBlocked(f"Task {task_id} is {turn.task.state}, not blocked_by_failures")
        _end(turn, "resolve", reason)
    return turn.task


def _end(turn: Turn, event: str, reason: str) -> None:
    steps = turn.steps.exclude(state__in=sorted(STEPS.terminal)).without_contents()
    moves, running = [], []
    for step in steps:
        moves.append(Move(step.pk, step.state, step.fence))
        if step.state in IN_FLIGHT and step.execution_id is not None:
            running.append(step.execution_id)
    turn.move_steps("cancel", moves, reason=reason)
    stop(running, now=turn.now, actor=turn.actor)
    turn.events.append(event)
    turn.move_task(reason=reason)
