"""One turn of a task: what its functions share while they hold its row."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Any
from uuid import UUID

from django.db import connection

from orchestrator.core.errors import NotFound
from orchestrator.core.state_machine import Move
from orchestrator.workflows.models import Step, Task, TaskTemplate
from orchestrator.workflows.models.tasks import StepQuerySet
from orchestrator.workflows.states import TASKS, TaskState
from orchestrator.workflows.task_templates import TemplateDefinition


class UnknownTask(NotFound):
    """No task has this id."""


@dataclass
class Turn:
    """A task whose row is locked, its template, and what was decided so far."""

    task: Task
    definition: TemplateDefinition
    now: datetime
    actor: str
    events: list[str] = field(default_factory=list)
    """What happens to the task, in this order, when the turn is over."""
    problem: str = ""
    """Why the task cannot go on at all."""

    @property
    def steps(self) -> StepQuerySet:
        """The task's steps, as they are in the database."""
        return Step.objects.filter(task_id=self.task.pk)

    @property
    def state(self) -> TaskState:
        """Where the task is after `events`."""
        if self.events:
            return TaskState(TASKS.rule(self.events[-1]).target)
        return TaskState(self.task.state)

    def move_steps(
        self, event: str | tuple[str, ...], moves: list[Move], *, reason: str = ""
    ) -> set[UUID]:
        """Transitions of steps, all in one statement; returns the ids that moved."""
        return Step.objects.transition_many(
            event, moves, now=self.now, actor=self.actor, reason=reason[:500]
        )

    def move_task(self, *, reason: str = "", **values: Any) -> None:
        """Carry out `events`. Nobody can get in between: the row is locked."""
        task = self.task
        move = Move(task.pk, task.state, task.fence, values)
        Task.objects.transition_many(
            self.events,
            [move],
            now=self.now,
            actor=self.actor,
            reason=reason[:500],
        )
        task.state = self.state
        task.fence += sum(TASKS.rule(event).new_attempt for event in self.events)
        task.state_entered_at = self.now
        self.events.clear()


def begin(task_id: UUID, *, now: datetime, actor: str) -> Turn:
    """Lock the task, and begin its turn. Call it inside a transaction. Raises UnknownTask.

    On PostgreSQL the row is locked; on SQLite the transaction is the only one that writes.
    """
    rows = Task.objects.select_related("template").defer("template__definition")
    if connection.features.has_select_for_update:
        rows = rows.select_for_update(of=("self",))
    try:
        task = rows.get(pk=task_id)
    except Task.DoesNotExist:
        raise UnknownTask(f"No task has the id {task_id}") from None
    return Turn(task, definition_of(task), now, actor)


def definition_of(task: Task) -> TemplateDefinition:
    """The task's template in the task's environment."""
    template = task.template
    return _definition(template.digest, task.environment, _Source(template))


class _Source:
    """Where a definition is read if it is not known yet; equal to every other one."""

    def __init__(self, template: TaskTemplate) -> None:
        self.template = template

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Source)

    def __hash__(self) -> int:
        return 0


@lru_cache(maxsize=256)
def _definition(digest: str, environment: str, source: _Source) -> TemplateDefinition:
    """Known by what it says, so that it cannot be out of date."""
    return TemplateDefinition.of(source.template.definition, environment=environment)
