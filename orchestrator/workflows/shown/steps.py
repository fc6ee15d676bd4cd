"""Steps and what they wait for, for a page of them at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Count, F, Window
from django.db.models.functions import RowNumber
from pydantic import Field

from orchestrator.core.redaction import redacted
from orchestrator.core.shown.values import Shown
from orchestrator.core.states import ExecutionStatus
from orchestrator.workflows.models import (
    Step,
    StepDependency,
    StepExecution,
    StepKind,
    Task,
    TaskTemplate,
)
from orchestrator.workflows.shown import secrets
from orchestrator.workflows.states import StepState

EXECUTION_LIMIT = 200
"""Of one step, the newest: more than 100 attempts come of resets only."""

NAMED_LIMIT = 5
"""A step after a batch may wait for thousands: so many are named."""

MESSAGE_CHARACTERS = 200


@dataclass(frozen=True, kw_only=True)
class WaitsFor:
    """A parent that is not satisfied."""

    name: str
    state: StepState


@dataclass(frozen=True, kw_only=True)
class StepView:
    """A step, and what becomes of it next."""

    step: Step
    waits_for: Sequence[WaitsFor]
    """The first few of the parents that it waits for."""
    waits_for_count: int
    retry_eligible: bool
    ready_for_execution: bool
    """Whether `advance` would enqueue it now."""
    message: str = ""
    """Why its last attempt failed, if it is in error."""

    @property
    def dependencies_satisfied(self) -> bool:
        return not self.waits_for_count

    @property
    def blocked_by(self) -> str:
        """What keeps it, in words; empty if it goes on by itself, or is over."""
        if self.step.is_terminal:
            return ""
        if self.waits_for_count:
            named = ", ".join(f"{each.name} ({each.state})" for each in self.waits_for)
            more = self.waits_for_count - len(self.waits_for)
            return f"{named} and {more:,} more" if more else named
        if self.step.state == StepState.ERROR:
            why = "it failed for good"
            if self.step.attempts >= self.step.max_attempts:
                why = "no attempts left"
            elif not self.step.retryable:
                why = "it is not retryable"
            return f"{why}: {self.message}" if self.message else why
        if self.step.state == StepState.WAITING_FOR_RETRY and not self.ready_for_execution:
            return "its backoff"
        return ""


def views(steps: Sequence[Step], *, now: datetime) -> list[StepView]:
    """Each of these as it is now, in three queries however many they are."""
    ids = [step.pk for step in steps]
    ready = set(Step.objects.ready(now).filter(pk__in=ids).values_list("pk", flat=True))
    waits, counts = _unsatisfied(ids)
    messages = _messages([step.pk for step in steps if step.state == StepState.ERROR])
    return [
        StepView(
            step=step,
            waits_for=waits.get(step.pk, ()),
            waits_for_count=counts.get(step.pk, 0),
            retry_eligible=step.retry_eligible(now),
            ready_for_execution=step.pk in ready,
            message=messages.get(step.pk, ""),
        )
        for step in steps
    ]


def counts(task_ids: Iterable[UUID]) -> Mapping[UUID, Counter[StepState]]:
    """How many steps of each of these tasks are in which state, in one query."""
    found: dict[UUID, Counter[StepState]] = {id: Counter() for id in task_ids}
    rows = Step.objects.filter(task_id__in=list(found)).order_by().values_list("task_id", "state")
    for id, state, count in rows.annotate(Count("pk")):
        found[id][StepState(state)] = count
    return found


def standing_in_the_way(task: Task) -> list[Step]:
    """The steps that failed and keep the task from its end, a few of them, the oldest first."""
    failed = task.steps.filter(state=StepState.ERROR).defer("result")
    return list(failed.order_by("pk")[:NAMED_LIMIT])


def _messages(ids: Sequence[UUID]) -> dict[UUID, str]:
    """What the errors of these steps say, cut to a line."""
    if not ids:
        return {}
    found = Step.objects.filter(pk__in=ids).values_list("pk", "error__message")
    return {
        id: " ".join(redacted(message).split())[:MESSAGE_CHARACTERS]
        for id, message in found
        if isinstance(message, str)
    }


def _unsatisfied(
    ids: Sequence[UUID],
) -> tuple[dict[UUID, list[WaitsFor]], dict[UUID, int]]:
    """The first unsatisfied parents of each step, and how many there are."""
    edges = StepDependency.objects.unsatisfied().filter(child_id__in=ids)
    rows = edges.annotate(
        place=Window(RowNumber(), partition_by=F("child_id"), order_by=F("parent_id").asc()),
        total=Window(Count("pk"), partition_by=F("child_id")),
    ).filter(place__lte=NAMED_LIMIT)
    waits: dict[UUID, list[WaitsFor]] = {}
    totals: dict[UUID, int] = {}
    for child, name, state, total in rows.order_by("place").values_list(
        "child_id", "parent__name", "parent__state", "total"
    ):
        waits.setdefault(child, []).append(WaitsFor(name=name, state=StepState(state)))
        totals[child] = total
    return waits, totals


# --- as JSON -------------------------------------------------------------------------------------


class WaitsForOut(Shown):
    """A step that another one waits for."""

    name: str
    state: StepState


class StepSummary(Shown):
    """A step as listings show it."""

    step_uuid: UUID
    task_uuid: UUID
    name: str
    template_step: str = Field(description="Its name in the template.")
    kind: StepKind
    batch: Any = Field(description="Of a batch worker: which part of the work is its.")
    created_by: UUID | None = Field(description="The step that created it.")
    current_state: StepState
    state_entered_at: datetime
    dependencies_satisfied: bool
    waits_for: list[WaitsForOut] = Field(description="The first 5 parents that it waits for.")
    waits_for_count: int
    blocked_by: str = Field(description="What keeps it, in words.")
    retry_eligible: bool
    ready_for_execution: bool
    attempts: int
    max_attempts: int
    retryable: bool
    last_failure_at: datetime | None
    next_retry_at: datetime | None
    execution_id: UUID | None = Field(description="Its latest execution.")
    ended_at: datetime | None


class StepTry(Shown):
    """An execution that was a try at a step."""

    execution_id: UUID
    action_ref: str
    status: ExecutionStatus
    reason: str
    worker: str | None
    retry_count: int
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None


class StepDetail(StepSummary):
    """A step with its result and its executions, the oldest first."""

    result: Any = Field(description="What its children see; secrets are `***`.")
    error: Any = Field(description="Why its last attempt failed.")
    executions: list[StepTry]


COPIED = (
    "name", "template_step", "kind", "batch", "state_entered_at", "attempts", "max_attempts",
    "retryable", "last_failure_at", "next_retry_at", "execution_id", "ended_at",
)  # fmt: skip
"""What is shown as the row has it."""


def summary(view: StepView) -> StepSummary:
    """A step as listings show it."""
    return StepSummary(**_summary(view))


def detail(view: StepView, template: TaskTemplate) -> StepDetail:
    """A step with its result, and every execution that was a try at it, the oldest first."""
    return StepDetail(
        **_summary(view),
        result=secrets.result(view.step, template),
        error=secrets.error(view.step),
        executions=[_try(each) for each in executions_of(view.step)],
    )


def executions_of(step: Step) -> list[StepExecution]:
    """The executions that were tries at a step, the oldest first, of many the newest."""
    found = step.executions.select_related("execution__worker").order_by("-fence")
    heavy = ("execution__parameters", "execution__result")
    return list(found.defer(*heavy)[:EXECUTION_LIMIT])[::-1]


def _summary(view: StepView) -> dict[str, Any]:
    step = view.step
    return {name: getattr(step, name) for name in COPIED} | {
        "step_uuid": step.pk,
        "task_uuid": step.task_id,
        "created_by": step.created_by_id,
        "current_state": step.state,
        "dependencies_satisfied": view.dependencies_satisfied,
        "waits_for": [WaitsForOut.model_validate(each) for each in view.waits_for],
        "waits_for_count": view.waits_for_count,
        "blocked_by": view.blocked_by,
        "retry_eligible": view.retry_eligible,
        "ready_for_execution": view.ready_for_execution,
    }


def _try(each: StepExecution) -> StepTry:
    execution = each.execution
    names = (
        "action_ref", "status", "reason", "retry_count", "created_at", "started_at", "ended_at",
    )  # fmt: skip
    return StepTry(
        **{name: getattr(execution, name) for name in names},
        execution_id=execution.pk,
        worker=execution.worker.name if execution.worker else None,
    )
