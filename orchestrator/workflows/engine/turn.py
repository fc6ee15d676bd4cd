"""One turn of a task: the state that its functions share while they hold its lock."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property, lru_cache
from typing import Any
from uuid import UUID

from django.db import connection

from orchestrator.core import masking, redaction
from orchestrator.core.database import is_outage
from orchestrator.core.errors import NotFound
from orchestrator.core.masking import Masker
from orchestrator.core.state_machine import Move
from orchestrator.workflows.models import Step, Task, TaskTemplate
from orchestrator.workflows.models.tasks import StepQuerySet
from orchestrator.workflows.states import TASKS, TaskState
from orchestrator.workflows.task_templates import TemplateDefinition


class UnknownTask(NotFound):
    """No task has this id."""


@dataclass
class Turn:
    """A task whose row is locked, its template, and the decisions so far."""

    task: Task
    now: datetime
    actor: str
    events: list[str] = field(default_factory=list)
    """The events to apply to the task, in this order, at the end of the turn."""
    problem: str = ""
    """The reason why the task cannot go on at all."""

    @cached_property
    def definition(self) -> TemplateDefinition:
        """The task's template, read when it is needed: a task whose template cannot be read can
        still be cancelled."""
        return definition_of(self.task)

    @cached_property
    def masker(self) -> Masker:
        """Masks the values that `input_schema` marks in the context, in what steps store."""
        schema = self.definition.input_schema
        if not redaction.marks_anything(schema):
            return Masker(())
        marked = redaction.marked(self.task.context, schema=schema)
        return Masker(text for each in marked for text in masking.worth_masking(each))

    @property
    def steps(self) -> StepQuerySet:
        """The task's steps, as they are in the database."""
        return Step.objects.filter(task_id=self.task.pk)

    @property
    def state(self) -> TaskState:
        """The state of the task after `events`."""
        if self.events:
            return TaskState(TASKS.rule(self.events[-1]).target)
        return TaskState(self.task.state)

    def move_steps(
        self, event: str | tuple[str, ...], moves: list[Move], *, reason: str = ""
    ) -> set[UUID]:
        """Move steps in one statement; returns the ids that moved."""
        return Step.objects.transition_many(
            event, moves, now=self.now, actor=self.actor, reason=reason[:500]
        )

    def move_task(self, *, reason: str = "", **values: Any) -> None:
        """Apply `events`. Nobody can interfere: the row is locked."""
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
        task.advance_tries = None
        self.events.clear()

    def release(self, reason: str) -> None:
        """Have an executor advance the task again, which was given up."""
        self.events.append("release")
        self.move_task(reason=reason, next_retry_at=self.now)

    def blames(self, error: Exception) -> bool:
        """Return True if this error fails the step at which it happened.

        At an executor's first try it does not, and is raised instead: the next try may pass.
        """
        return self.task.advance_tries != 1 and not is_outage(error)


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
    return Turn(task, now, actor)


def definition_of(task: Task) -> TemplateDefinition:
    """The task's template in the task's environment."""
    template = task.template
    return _definition(template.digest, task.environment, _Source(template))


class _Source:
    """The template from which to read a definition that is not cached; equal to every other
    source."""

    def __init__(self, template: TaskTemplate) -> None:
        self.template = template

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Source)

    def __hash__(self) -> int:
        return 0


@lru_cache(maxsize=256)
def _definition(digest: str, environment: str, source: _Source) -> TemplateDefinition:
    """Read a definition; cached by the digest of its content, so it cannot be out of date."""
    return TemplateDefinition.of(source.template.definition, environment=environment)
