"""What is said of tasks and steps, whichever face says it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import Field

from orchestrator.core.models import Execution
from orchestrator.core.shown.values import Fact, Link, Shown
from orchestrator.workflows.models import StepExecution, Task, TaskStaleness
from orchestrator.workflows.shown import graph, secrets, steps
from orchestrator.workflows.states import StepState, TaskState


def of_execution(execution: Execution) -> list[Fact]:
    """For an execution's page: the steps that it was run for."""
    tries = StepExecution.objects.filter(execution=execution).select_related("step__task")
    facts: list[Fact] = []
    for step in (each.step for each in tries):
        facts.append(("Try at step", Link(step, step.name)))
        facts.append(("Of task", Link(step.task, str(step.task_id))))
    return facts


class TaskHealth(Shown):
    """An open task, how long it has been where it is, and how long it may be."""

    task_uuid: UUID
    namespace: str
    task_name: str
    template_version: str
    environment: str
    current_state: str
    priority: int
    correlation_id: str | None
    time_in_state_minutes: float
    staleness_threshold_minutes: float | None = Field(
        description="null: this state has no limit of its own."
    )
    task_age_minutes: float
    max_duration_minutes: float
    health_status: TaskStaleness.Health
    has_pending_entry: bool


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
    priority: int
    initiator: str
    source_system: str
    reason: str = Field(description="Why it was requested.")
    tags: list[str]
    correlation_id: str | None
    parent_correlation_id: str | None
    idempotency_key: str
    requested_by: str
    created_at: datetime
    ended_at: datetime | None
    steps: dict[StepState, int] = Field(description="How many of its steps are in which state.")


class TaskDetail(TaskSummary):
    """A task with what it was given."""

    context: Any = Field(description="Secrets are `***`.")
    blocked_by: list[str] = Field(description="Failed steps that keep it from its end; up to 5.")


class GraphNode(Shown):
    """A step in the graph."""

    name: str
    kind: str
    step_uuid: UUID | None
    state: StepState | None = Field(description="null: its step is not made yet.")
    attempts: int
    max_attempts: int


class GraphEdge(Shown):
    """The child waits for the parent."""

    parent: str
    child: str


class GraphOut(Shown):
    """Every step and what it waits for."""

    task_uuid: UUID
    state: TaskState
    is_made: bool = Field(description="false: what the template says; no step is made yet.")
    nodes: list[GraphNode]
    edges: list[GraphEdge]


class TransitionOut(Shown):
    """One transition that happened: of the task, or of the step that it names."""

    step_uuid: UUID | None = Field(validation_alias="step_id")
    event: str
    from_state: str
    to_state: str
    actor: str
    reason: str
    processor: str
    at: datetime


COPIED = (
    "environment", "state", "state_entered_at", "next_retry_at", "priority", "initiator",
    "source_system", "reason", "tags", "correlation_id", "parent_correlation_id",
    "idempotency_key", "requested_by", "created_at", "ended_at",
)  # fmt: skip
"""What is shown as the row has it."""


def summary(task: Task, counts: Mapping[StepState, int]) -> TaskSummary:
    """It comes with its template. `counts`: how many steps are in which state."""
    return TaskSummary(**_summary(task, counts))


def detail(task: Task) -> TaskDetail:
    """A task with its context, and what keeps it from its end."""
    return TaskDetail(
        **_summary(task, steps.counts([task.pk])[task.pk]),
        context=secrets.context(task),
        blocked_by=[step.name for step in steps.standing_in_the_way(task)],
    )


def graph_of(task: Task) -> GraphOut:
    """Every step and what it waits for."""
    found = graph.of_task(task)
    return GraphOut(
        task_uuid=task.pk,
        state=TaskState(task.state),
        is_made=found.is_made,
        nodes=[
            GraphNode(
                name=node.name,
                kind=node.kind,
                step_uuid=node.id,
                state=node.state,
                attempts=node.attempts,
                max_attempts=node.max_attempts,
            )
            for node in found.nodes.values()
        ],
        edges=[GraphEdge(parent=parent, child=child) for parent, child in found.edges],
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
