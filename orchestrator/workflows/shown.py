"""What is said of tasks and steps, whichever face says it."""

from __future__ import annotations

from orchestrator.core.models import Execution
from orchestrator.core.shown.values import Fact, Link
from orchestrator.workflows.models import StepExecution


def of_execution(execution: Execution) -> list[Fact]:
    """For an execution's page: the steps that it was run for."""
    tries = StepExecution.objects.filter(execution=execution).select_related("step__task")
    facts: list[Fact] = []
    for step in (each.step for each in tries):
        facts.append(("Try at step", Link(step, step.name)))
        facts.append(("Of task", Link(step.task, str(step.task_id))))
    return facts
