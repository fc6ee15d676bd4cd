"""What is said of tasks and steps, whichever face says it."""

from __future__ import annotations

from uuid import UUID

from pydantic import Field

from orchestrator.core.models import Execution
from orchestrator.core.shown.values import Fact, Link, Shown
from orchestrator.workflows.models import StepExecution, TaskStaleness


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
