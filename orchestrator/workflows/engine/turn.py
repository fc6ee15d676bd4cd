"""Turns of tasks: the state that the functions share while they hold the locks of the tasks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
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
from orchestrator.workflows.models.steps import StepQuerySet
from orchestrator.workflows.states import TASKS, TaskState
from orchestrator.workflows.task_templates import TemplateDefinition

Failure = tuple[Step, dict[str, Any]]
"""A step, and the error that it stores."""


class UnknownTask(NotFound):
    """No task has this id."""


@dataclass(eq=False)
class Turn:
    """A task whose row is locked, its template, and the decisions so far."""

    task: Task
    now: datetime
    actor: str
    events: list[str] = field(default_factory=list)
    """The events to apply to the task, in this order, at the end of the turn."""
    problem: str = ""
    """The reason why the task cannot go on at all."""
    settled: int = 0
    """The number of its steps that were settled."""
    enqueued: int = 0
    """For how many of its steps an execution was requested."""

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

    def move(self, *, reason: str = "", **values: Any) -> None:
        """Apply `events`. Nobody can interfere: the row is locked."""
        move_tasks([(self, values)], reason=reason)

    def release(self, reason: str) -> None:
        """Have an executor advance the task again, which was given up."""
        self.events.append("release")
        self.move(reason=reason, next_retry_at=self.now)

    def blames(self, error: Exception) -> bool:
        """Return True if this error fails the step at which it happened.

        At an executor's first try it does not, and is raised instead: the next try may pass.
        """
        return self.task.advance_tries != 1 and not is_outage(error)


@dataclass(frozen=True)
class Turns:
    """The turns of tasks that one transaction has locked: one statement serves all of them."""

    by_task: Mapping[UUID, Turn]
    now: datetime
    actor: str

    def __iter__(self) -> Iterator[Turn]:
        return iter(self.by_task.values())

    def __bool__(self) -> bool:
        return bool(self.by_task)

    @property
    def only(self) -> Turn:
        """The turn of the only task."""
        (turn,) = self
        return turn

    def of(self, step: Step) -> Turn:
        """The turn of a step's task."""
        return self.by_task[step.task_id]

    def those(self, turns: Iterable[Turn]) -> Turns:
        """Some of the turns."""
        return Turns({turn.task.pk: turn for turn in turns}, self.now, self.actor)

    @property
    def steps(self) -> StepQuerySet:
        """The tasks' steps, as they are in the database."""
        return Step.objects.filter(task_id__in=list(self.by_task))

    def move_steps(
        self, event: str | tuple[str, ...], moves: Sequence[Move], *, reason: str = ""
    ) -> set[UUID]:
        """Move steps in one statement; returns the ids that moved."""
        return Step.objects.transition_many(
            event, moves, now=self.now, actor=self.actor, reason=reason[:500]
        )


def move_tasks(moving: Sequence[tuple[Turn, Mapping[str, Any]]], *, reason: str = "") -> None:
    """Apply `events`, which are the same in all these turns, and set the values of each. Nobody can
    interfere: the rows are locked."""
    if not moving:
        return
    first = moving[0][0]
    Task.objects.transition_many(
        first.events,
        [Move(turn.task.pk, turn.task.state, turn.task.fence, dict(v)) for turn, v in moving],
        now=first.now,
        actor=first.actor,
        reason=reason[:500],
    )
    for turn, _ in moving:
        task = turn.task
        task.state = turn.state
        task.fence += sum(TASKS.rule(event).new_attempt for event in turn.events)
        task.state_entered_at = turn.now
        task.advance_tries = None
        turn.events.clear()


def begin(task_id: UUID, *, now: datetime, actor: str) -> Turns:
    """Lock the task, and begin its turn. Call it inside a transaction. Raises UnknownTask.

    On PostgreSQL the row is locked; on SQLite the transaction is the only one that writes.
    """
    turns = _begun([task_id], now=now, actor=actor)
    if not turns:
        raise UnknownTask(f"No task has the id {task_id}")
    return turns


def begin_free(task_ids: Collection[UUID], *, now: datetime, actor: str) -> Turns:
    """Lock those of the tasks that are there and that no other session holds, and begin their
    turns."""
    return _begun(task_ids, now=now, actor=actor, skip_locked=True)


def _begun(
    task_ids: Collection[UUID], *, now: datetime, actor: str, skip_locked: bool = False
) -> Turns:
    # in the order of their ids, so that two sessions cannot wait for each other
    rows = Task.objects.filter(pk__in=task_ids).order_by("pk")
    rows = rows.select_related("template").defer("template__definition")
    if connection.features.has_select_for_update:
        rows = rows.select_for_update(of=("self",), skip_locked=skip_locked)
    return Turns({task.pk: Turn(task, now, actor) for task in rows}, now, actor)


def definition_of(task: Task) -> TemplateDefinition:
    """The task's template in the task's environment."""
    template = task.template
    return _definition(template.pk, template.digest, task.environment)


@lru_cache(maxsize=256)
def _definition(template_id: int, digest: str, environment: str) -> TemplateDefinition:
    """Read a definition; cached by the digest of its content, so it cannot be out of date."""
    template = TaskTemplate.objects.only("definition").get(pk=template_id)
    return TemplateDefinition.of(template.definition, environment=environment)
