"""Steps and the parents that they wait for, for one page at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Case, Count, Exists, F, OuterRef, Value, When, Window
from django.db.models.functions import RowNumber
from pydantic import Field

from orchestrator.core import authority, words
from orchestrator.core.authority import Place, Principal
from orchestrator.core.frame import NAMESPACES
from orchestrator.core.redaction import redacted_text
from orchestrator.core.shown.documents import Shown
from orchestrator.core.shown.values import At, Due, Fact, Happening, Json, Link, Prose, State, said
from orchestrator.core.states import ExecutionStatus
from orchestrator.inquiries.models import Inquiry
from orchestrator.inquiries.shown import inquiries as shown_inquiries
from orchestrator.workflows.models import (
    Step,
    StepDependency,
    StepExecution,
    StepKind,
    Task,
    TaskTemplate,
    TransitionRecord,
)
from orchestrator.workflows.models.steps import StepQuerySet
from orchestrator.workflows.shown import secrets
from orchestrator.workflows.states import STEPS, StepState, TaskState

EXECUTION_LIMIT = 200
"""The newest executions of a step: only resets lead to more than 100 attempts."""

NAMED_LIMIT = 5
"""The number of parents that are named: a step after a batch may wait for thousands."""

MESSAGE_CHARACTERS = 200


@dataclass(frozen=True, kw_only=True)
class WaitsFor:
    """A parent that is not satisfied."""

    name: str
    state: StepState


@dataclass(frozen=True, kw_only=True)
class StepView:
    """A step, and what happens to it next."""

    step: Step
    waits_for: Sequence[WaitsFor]
    """The first few of the parents that it waits for."""
    waits_for_count: int
    retry_eligible: bool
    ready_for_execution: bool
    """True if `advance` would enqueue it now."""
    last_attempted_at: datetime | None = None
    """The time at which its latest execution was requested."""
    message: str = ""
    """The message of its last attempt, if it is in error."""
    inquiry: Inquiry | None = None
    """The inquiry that its latest execution makes to people, or waits for."""
    wait_reason: str = ""
    """The reason why its latest execution is not with a worker yet."""

    @property
    def dependencies_satisfied(self) -> bool:
        return not self.waits_for_count

    @property
    def blocked_by(self) -> str:
        """The obstacle, in words; empty if it continues without help, or has ended."""
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
        if self.inquiry is not None and self.inquiry.is_open:
            return f"an answer of {shown_inquiries.who(self.inquiry)}"
        if self.step.state == StepState.WAITING_FOR_RETRY and not self.ready_for_execution:
            return "its backoff"
        return self.wait_reason if self.step.state == StepState.ENQUEUED else ""


def views(steps: Sequence[Step], *, now: datetime, seen_by: Principal) -> list[StepView]:
    """Describe steps as they are now, in three queries for any number of steps, and one more if
    some of them ask people."""
    ids = [step.pk for step in steps]
    is_ready = Exists(Step.objects.ready(now).filter(pk=OuterRef("pk")))
    columns = ("execution__created_at", "execution__wait_reason")
    known = Step.objects.filter(pk__in=ids).values_list("pk", is_ready, *columns)
    ready = {id for id, is_so, *_ in known if is_so}
    attempted_at = {id: at for id, _, at, _ in known}
    why_waiting = {id: why or "" for id, *_, why in known}
    waits, counts = unsatisfied(ids)
    messages = _messages([s.pk for s in steps if s.state == StepState.ERROR], seen_by)
    asking = [s.execution_id for s in steps if s.kind == StepKind.INQUIRY and s.execution_id]
    asked = shown_inquiries.of_executions(asking) if asking else {}
    return [
        StepView(
            step=step,
            waits_for=waits.get(step.pk, ()),
            waits_for_count=counts.get(step.pk, 0),
            retry_eligible=step.retry_eligible(now),
            ready_for_execution=step.pk in ready,
            last_attempted_at=attempted_at.get(step.pk),
            message=messages.get(step.pk, ""),
            inquiry=asked.get(step.execution_id) if step.execution_id else None,
            wait_reason=why_waiting.get(step.pk, ""),
        )
        for step in steps
    ]


S = StepState
BY_ATTENTION: Sequence[StepState] = (
    S.ERROR, S.WAITING_FOR_RETRY, S.WAITING_FOR_INQUIRY, S.IN_PROGRESS,
    S.ENQUEUED_FOR_ORCHESTRATION, S.ENQUEUED, S.PENDING,
)  # fmt: skip
"""The order of states for who looks for what is wrong; all others come last."""


def by_attention(steps: StepQuerySet) -> StepQuerySet:
    """Sort steps: those that need attention first. Each has its place as `attention`."""
    order = [When(state=state, then=Value(n)) for n, state in enumerate(BY_ATTENTION)]
    last = Value(len(order))
    return steps.annotate(attention=Case(*order, default=last)).order_by("attention", "pk")


def counts(task_ids: Iterable[UUID]) -> Mapping[UUID, Counter[StepState]]:
    """Count the steps of each task by state, in one query."""
    by_task: dict[UUID, Counter[StepState]] = {id: Counter() for id in task_ids}
    rows = Step.objects.filter(task_id__in=list(by_task)).order_by().values_list("task_id", "state")
    for id, state, count in rows.annotate(Count("pk")):
        by_task[id][StepState(state)] = count
    return by_task


def standing_in_the_way(task: Task) -> list[Step]:
    """A few of the failed steps that prevent the task from ending, the oldest first."""
    failed = task.steps.filter(state=StepState.ERROR).defer("result")
    return list(failed.order_by("pk")[:NAMED_LIMIT])


def failures(task_ids: Iterable[UUID], *, seen_by: Principal) -> dict[UUID, str]:
    """Of each task with failed steps: the oldest of them, with its message, in one query."""
    failed = Step.objects.filter(task__in=list(task_ids), state=StepState.ERROR)
    place = Window(RowNumber(), partition_by=F("task_id"), order_by=F("pk").asc())
    oldest = failed.order_by().annotate(place_in_task=place).filter(place_in_task=1)
    columns = ("task_id", "name", "error__message", "task__template__namespace")
    return {
        task: f"{name}: {_shown(message, namespace, seen_by) or 'failed'}"
        for task, name, message, namespace in oldest.values_list(*columns)
    }


def message(step: Step, *, seen_by: Principal) -> str:
    """The error message of a step's last attempt, cut to one line; the step has its task and
    template."""
    error = step.error if isinstance(step.error, dict) else {}
    return _shown(error.get("message"), step.task.template.namespace, seen_by)


def _messages(ids: Sequence[UUID], seen_by: Principal) -> dict[UUID, str]:
    """The error messages of these steps, each cut to one line."""
    if not ids:
        return {}
    columns = ("pk", "error__message", "task__template__namespace")
    rows = Step.objects.filter(pk__in=ids).values_list(*columns)
    shown = {id: _shown(message, namespace, seen_by) for id, message, namespace in rows}
    return {id: message for id, message in shown.items() if message}


def _shown(message: Any, namespace: str, seen_by: Principal) -> str:
    """An error message as one line; empty without one."""
    if not isinstance(message, str):
        return ""
    place = Place(NAMESPACES, namespace)
    return str(authority.payload(_line(message), of=place, seen_by=seen_by))


def _line(message: str) -> str:
    return " ".join(redacted_text(message).split())[:MESSAGE_CHARACTERS]


def unsatisfied(
    ids: Sequence[UUID],
) -> tuple[dict[UUID, list[WaitsFor]], dict[UUID, int]]:
    """The first unsatisfied parents of each step, and their number."""
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


# --- as facts ------------------------------------------------------------------------------------


def situation(view: StepView, now: datetime) -> list[Fact]:
    """Its state, its obstacle, and the process that moves it on."""
    step, creator = view.step, view.step.created_by
    return said(
        [
            ("Step", step.name),
            ("Id", str(step.pk)),
            ("Task", Link(step.task, str(step.task_id))),
            ("State", State(step.state)),
            since(step, now),
            ("Moved on by", Prose(STEPS.who_moves_it_on[StepState(step.state)])),
            ("Attempts", attempts(step) + ("" if step.retryable else ", not retryable")),
            ("Kind", step.kind),
            ("Inquiry", _inquiry(view.inquiry)),
            ("Waits for" if view.waits_for_count else "Blocked by", view.blocked_by),
            (
                "Ready",
                "yes: it is enqueued when its task is advanced"
                if view.ready_for_execution
                else None,
            ),
            ("Dependencies", "satisfied" if view.dependencies_satisfied else "not satisfied"),
            ("Retry eligible", "yes" if view.retry_eligible else "no"),
            ("Last attempt", At(view.last_attempted_at) if view.last_attempted_at else None),
            ("Next attempt", Due(step.next_retry_at, now) if step.next_retry_at else None),
            ("Last failed", At(step.last_failure_at) if step.last_failure_at else None),
            ("Its part", Json(step.batch) if step.batch else None),
            ("Created by", Link(creator, creator.name) if creator else None),
        ]
    )


def _inquiry(row: Inquiry | None) -> Link | None:
    if row is None:
        return None
    by = f", {row.answered_by}" if row.answered_by else ""
    return Link(row, shown_inquiries.line(row), f"({row.state}{by})")


def since(row: Task | Step, now: datetime) -> Fact:
    """The time when it entered its state."""
    ago = words.span((now - row.state_entered_at).total_seconds())
    return "Since", At(row.state_entered_at, f"{ago} ago")


def attempts(step: Step) -> str:
    """`1/3`: attempts used, and attempts allowed."""
    return f"{step.attempts}/{step.max_attempts}"


def timeline(records: Sequence[TransitionRecord], *, task: Task | None = None) -> list[Happening]:
    """The transitions as lines, each with its step and the time since the line before.

    They are loaded with their steps. `task`: start with its request.
    """
    lines = []
    if task is not None:
        lines.append(
            Happening(
                at=task.created_at,
                after_seconds=0,
                event="accepted",
                to=TaskState.PENDING,
                actor=task.requested_by,
                subject="task",
            )
        )
    for record in records:
        before = lines[-1].at if lines else record.at
        lines.append(
            Happening(
                at=record.at,
                after_seconds=(record.at - before).total_seconds(),
                event=record.event,
                was=record.from_state,
                to=record.to_state,
                actor=record.actor,
                reason=record.reason,
                subject=record.step.name if record.step else "task",
                processor=record.processor,
            )
        )
    return lines


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
    batch: Any = Field(description="For a batch worker: its part of the work.")
    created_by: UUID | None = Field(description="The step that created it.")
    current_state: StepState
    state_entered_at: datetime
    dependencies_satisfied: bool
    waits_for: list[WaitsForOut] = Field(description="The first 5 parents that it waits for.")
    waits_for_count: int
    blocked_by: str = Field(description="The obstacle, in words.")
    retry_eligible: bool
    ready_for_execution: bool
    attempts: int
    max_attempts: int
    retryable: bool
    last_attempted_at: datetime | None = Field(
        description="When its latest execution was requested."
    )
    last_failure_at: datetime | None
    next_retry_at: datetime | None
    execution_id: UUID | None = Field(description="Its latest execution.")
    inquiry_id: UUID | None = Field(description="What that asks people, or waits for.")
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
    """A step with its result and its executions, oldest first."""

    result: Any = Field(
        description="The result that its children see; secrets are `***`, and all of it without "
        "`payloads.read`."
    )
    completion_metadata: Any = Field(
        description="The evidence for a result that was given by hand; `***` without "
        "`payloads.read`."
    )
    error: Any = Field(description="The error of its last attempt; `***` without `payloads.read`.")
    executions: list[StepTry]


COPIED = (
    "name", "template_step", "kind", "batch", "state_entered_at", "attempts", "max_attempts",
    "retryable", "last_failure_at", "next_retry_at", "execution_id", "ended_at",
)  # fmt: skip
"""The fields that are copied from the row."""


def summary(view: StepView) -> StepSummary:
    """A step as listings show it."""
    return StepSummary(**_summary(view))


def detail(view: StepView, template: TaskTemplate, *, seen_by: Principal) -> StepDetail:
    """A step with its result, and every execution that was a try at it, oldest first."""
    return StepDetail(
        **_summary(view),
        result=secrets.result(view.step, template, seen_by=seen_by),
        completion_metadata=secrets.completion_metadata(view.step, seen_by=seen_by),
        error=secrets.error(view.step, seen_by=seen_by),
        executions=[_try(each) for each in executions_of(view.step)],
    )


def executions_of(step: Step) -> list[StepExecution]:
    """The executions that were tries at a step, oldest first; if they are many, the newest."""
    newest = step.executions.select_related("execution__worker").order_by("-fence")
    heavy = ("execution__parameters", "execution__result")
    return list(newest.defer(*heavy)[:EXECUTION_LIMIT])[::-1]


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
        "last_attempted_at": view.last_attempted_at,
        "inquiry_id": view.inquiry.pk if view.inquiry else None,
    }


def _try(each: StepExecution) -> StepTry:
    execution = each.execution
    names = (
        "action_ref", "status", "reason", "retry_count", "created_at", "started_at", "ended_at",
    )  # fmt: skip
    return StepTry(
        **{name: getattr(execution, name) for name in names},
        execution_id=execution.pk,
        worker=execution.worker_name,
    )
