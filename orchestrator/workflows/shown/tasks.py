"""Tasks: as JSON, and as facts."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import Field

from orchestrator.core import words
from orchestrator.core.authority import Principal
from orchestrator.core.models import Execution
from orchestrator.core.shown.documents import Shown
from orchestrator.core.shown.values import At, Due, Fact, Link, Links, Prose, Search, State, said
from orchestrator.workflows import engine
from orchestrator.workflows.models import Step, Task, TaskStaleness, TaskTemplate
from orchestrator.workflows.shown import graph, secrets, steps
from orchestrator.workflows.states import TASKS, StepState, TaskState
from orchestrator.workflows.states.steps import SATISFIED

QUARANTINE = (
    "executors died of it, or failed at it: none advances it until somebody repairs a step or "
    "releases it"
)


def of_execution(execution: Execution) -> list[Fact]:
    """The steps that an execution was run for, for its page."""
    facts: list[Fact] = []
    for each in secrets.steps_of([execution]):
        # as much of the rows as their links need
        task = Task(pk=each.task_id, template=TaskTemplate(namespace=each.namespace))
        step = Step(pk=each.step_id, name=each.name, task=task)
        facts.append(("Try at step", Link(step, step.name)))
        facts.append(("Of task", Link(task, str(task.pk))))
    return facts


def situation(task: Task, counts: Mapping[StepState, int], now: datetime) -> list[Fact]:
    """Its state, its obstacle, and the process that moves it on; `counts`: steps by state."""
    failed = steps.standing_in_the_way(task)
    took = words.span(((task.ended_at or now) - task.created_at).total_seconds())
    return said(
        [
            ("Task", str(task.pk)),
            ("Template", Link(task.template, task.template.ref)),
            ("State", State(task.state)),
            steps.since(task, now),
            ("Moved on by", Prose(TASKS.who_moves_it_on[TaskState(task.state)])),
            ("Quarantined", Prose(QUARANTINE) if task.is_quarantined else None),
            ("Steps done", progress(counts)),
            ("Next attempt", Due(task.next_retry_at, now) if task.next_retry_at else None),
            ("Blocked by", Links(tuple(Link(step, step.name) for step in failed))),
            ("Took" if task.ended_at else "Age", took),
        ]
    )


def progress(counts: Mapping[StepState, int]) -> str:
    """The steps that are done, of all: `12/30`; `-` if none is created yet."""
    total = sum(counts.values())
    return f"{done(counts):,}/{total:,}" if total else "-"


def done(counts: Mapping[StepState, int]) -> int:
    """The number of steps that no other step waits for any more."""
    return sum(counts.get(state, 0) for state in SATISFIED)


def request(task: Task) -> list[Fact]:
    """The request, and who sent it."""
    correlation_id = task.correlation_id
    return said(
        [
            ("Requested by", task.requested_by),
            ("Initiator", task.initiator),
            ("Source system", task.source_system),
            ("Why", task.reason),
            ("Tags", ", ".join(map(str, task.tags))),
            ("Priority", task.priority),
            ("Environment", task.environment),
            ("Correlation id", Search(Task, correlation_id) if correlation_id else None),
            ("Parent correlation id", task.parent_correlation_id),
            ("Idempotency key", task.idempotency_key),
            ("Created", At(task.created_at)),
            ("Ended", At(task.ended_at) if task.ended_at else None),
        ]
    )


class TaskHealth(Shown):
    """An open task, the time it has been in its state, and the limit for that time."""

    task_uuid: UUID
    namespace_name: str
    task_name: str
    template_version: str
    environment: str
    current_state: str
    priority: int
    correlation_id: str | None
    time_in_state_minutes: float
    staleness_threshold_minutes: float = Field(
        description="Of a state without a limit of its own: that of the age."
    )
    task_age_minutes: float
    max_duration_minutes: float
    threshold_percentage: float = Field(
        description="The larger part of a limit that is used up, in percent."
    )
    health_status: TaskStaleness.Health
    has_pending_entry: bool


class TaskStale(Shown):
    """A task over a limit, and what detection did with it, or would do."""

    task_uuid: UUID
    namespace_name: str
    task_name: str
    template_version: str
    current_state: TaskState = Field(description="Its state before the action.")
    limit_name: str = Field(
        description="The limit that it was over first: a state, or `duration`, that of its age."
    )
    time_in_state_minutes: float
    task_age_minutes: float
    staleness_threshold_minutes: float = Field(description="The minutes that this limit allows.")
    overdue_minutes: float = Field(description="The time since it was over this limit.")
    detail: str = Field(description="All limits that it is over, as its entry says it.")
    action_taken: engine.Action
    moved_to_dlq: bool = Field(description="An entry was opened; never by a dry run.")
    transition_success: bool = Field(description="It is in `error` now; never by a dry run.")


def foresee(*, limit: int, seen_by: Principal, now: datetime) -> list[TaskStale]:
    """The tasks that the next detection finds, of those that the caller may see."""
    found = engine.foresee(now, limit)
    mine = Task.objects.visible_to(seen_by, "dlq.read").filter(pk__in=[s.task.pk for s in found])
    known = set(mine.values_list("pk", flat=True))
    return [stale_task(stale.foreseen(now)) for stale in found if stale.task.pk in known]


def stale_task(task: engine.StaleTask) -> TaskStale:
    return TaskStale.model_validate(task)


class TaskSummary(Shown):
    """A task as listings show it."""

    task_uuid: UUID
    namespace: str
    name: str
    version: str
    environment: str
    state: TaskState
    state_entered_at: datetime
    next_retry_at: datetime | None
    is_quarantined: bool = Field(
        description="No executor advances it until a step is repaired or it is released."
    )
    priority: int
    initiator: str
    source_system: str
    reason: str = Field(description="The reason of the request.")
    tags: list[str]
    correlation_id: str | None
    parent_correlation_id: str | None
    idempotency_key: str
    requested_by: str
    created_at: datetime
    ended_at: datetime | None
    steps: dict[StepState, int] = Field(description="The number of its steps in each state.")


class TaskDetail(TaskSummary):
    """A task with its context."""

    context: Any = Field(description="Secrets are `***`, and all of it without `payloads.read`.")
    blocked_by: list[str] = Field(description="Failed steps that prevent it from ending; up to 5.")


class GraphNode(Shown):
    """A step in the graph."""

    name: str
    kind: str
    step_uuid: UUID | None
    state: StepState | None = Field(description="null if the step is not created yet.")
    attempts: int
    max_attempts: int


class GraphEdge(Shown):
    """A dependency: the child waits for the parent."""

    parent: str
    child: str


class GraphOut(Shown):
    """Every step, and the steps that it waits for."""

    task_uuid: UUID
    state: TaskState
    is_made: bool = Field(
        description="false if no step is created yet: then these are the template's."
    )
    nodes: list[GraphNode]
    edges: list[GraphEdge]


class TransitionOut(Shown):
    """One transition that happened, of the task or of the named step."""

    step_uuid: UUID | None = Field(validation_alias="step_id")
    event: str
    from_state: str
    to_state: str
    actor: str
    reason: str
    processor: str
    at: datetime


COPIED = (
    "environment", "state", "state_entered_at", "next_retry_at", "is_quarantined", "priority",
    "initiator", "source_system", "reason", "tags", "correlation_id", "parent_correlation_id",
    "idempotency_key", "requested_by", "created_at", "ended_at",
)  # fmt: skip
"""The fields that are copied from the row."""


def summary(task: Task, counts: Mapping[StepState, int]) -> TaskSummary:
    """Convert a task, loaded with its template. `counts`: the number of steps in each state."""
    return TaskSummary(**_summary(task, counts))


def detail(task: Task, *, seen_by: Principal) -> TaskDetail:
    """A task with its context, and the steps that prevent it from ending."""
    return TaskDetail(
        **_summary(task, steps.counts([task.pk])[task.pk]),
        context=secrets.context(task, seen_by=seen_by),
        blocked_by=[step.name for step in steps.standing_in_the_way(task)],
    )


def graph_of(task: Task) -> GraphOut:
    """Every step, and the steps that it waits for."""
    task_graph = graph.of_task(task)
    return GraphOut(
        task_uuid=task.pk,
        state=TaskState(task.state),
        is_made=task_graph.is_made,
        nodes=[
            GraphNode(
                name=node.name,
                kind=node.kind,
                step_uuid=node.id,
                state=node.state,
                attempts=node.attempts,
                max_attempts=node.max_attempts,
            )
            for node in task_graph.nodes.values()
        ],
        edges=[GraphEdge(parent=parent, child=child) for parent, child in task_graph.edges],
    )


def _summary(task: Task, counts: Mapping[StepState, int]) -> dict[str, Any]:
    template = task.template
    return {name: getattr(task, name) for name in COPIED} | {
        "task_uuid": task.pk,
        "namespace": template.namespace,
        "name": template.name,
        "version": template.version,
        "steps": dict(counts),
    }
