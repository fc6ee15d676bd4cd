"""Tasks, steps and templates as JSON: what the API answers and what `--json` prints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestrator.workflows.models import Step, StepExecution, Task, TaskTemplate, TransitionRecord
from orchestrator.workflows.states import StepState
from orchestrator.workflows.task_templates import TemplateDefinition
from orchestrator.workflows.task_view import graph, secrets, steps

EXECUTION_LIMIT = 200
"""Of one step, the newest: more than 100 attempts come of resets only."""

Document = dict[str, Any]


def of_task(task: Task, counts: Mapping[StepState, int]) -> Document:
    """A task as listings show it, with how many steps are in which state."""
    template = task.template
    return {
        "task_uuid": task.pk,
        "namespace": template.namespace,
        "name": template.name,
        "version": template.version,
        **_described(
            task, "environment", "state", "state_entered_at", "next_retry_at", "priority",
            "initiator", "source_system", "reason", "tags", "correlation_id",
            "parent_correlation_id", "idempotency_key", "requested_by", "created_at", "ended_at",
        ),
        "steps": dict(counts),
    }  # fmt: skip


def of_one_task(task: Task) -> Document:
    """A task with its context, and what keeps it from its end."""
    return of_task(task, steps.counts([task.pk])[task.pk]) | {
        "context": secrets.context(task),
        "blocked_by": [step.name for step in steps.standing_in_the_way(task)],
    }


def of_step(view: steps.StepView) -> Document:
    """A step as listings show it."""
    step = view.step
    return {
        "step_uuid": step.pk,
        "task_uuid": step.task_id,
        **_described(step, "name", "template_step", "kind", "batch"),
        "created_by": step.created_by_id,
        "current_state": step.state,
        "state_entered_at": step.state_entered_at,
        "dependencies_satisfied": view.dependencies_satisfied,
        "waits_for": [{"name": each.name, "state": each.state} for each in view.waits_for],
        "waits_for_count": view.waits_for_count,
        "blocked_by": view.blocked_by,
        "retry_eligible": view.retry_eligible,
        "ready_for_execution": view.ready_for_execution,
        **_described(
            step, "attempts", "max_attempts", "retryable", "last_failure_at", "next_retry_at",
            "execution_id", "ended_at",
        ),
    }  # fmt: skip


def of_one_step(view: steps.StepView, template: TaskTemplate) -> Document:
    """A step with its result, and every execution that was a try at it, the oldest first."""
    tries = executions_of(view.step)
    return of_step(view) | {
        "result": secrets.result(view.step, template),
        "error": secrets.error(view.step),
        "executions": [of_try(each) for each in tries],
    }


def executions_of(step: Step) -> list[StepExecution]:
    """The executions that were tries at a step, the oldest first, of many the newest."""
    found = step.executions.select_related("execution__worker").order_by("-fence")
    heavy = ("execution__parameters", "execution__result")
    return list(found.defer(*heavy)[:EXECUTION_LIMIT])[::-1]


def of_try(each: StepExecution) -> Document:
    """An execution as a step shows it."""
    execution = each.execution
    return {
        "execution_id": execution.pk,
        "action_ref": execution.action_ref,
        "status": execution.status,
        "reason": execution.reason,
        "worker": execution.worker.name if execution.worker else None,
        "retry_count": execution.retry_count,
        **_described(execution, "created_at", "started_at", "ended_at"),
    }


def of_graph(task: Task) -> Document:
    """Every step and what it waits for."""
    found = graph.of_task(task)
    return {
        "task_uuid": task.pk,
        "state": task.state,
        "is_made": found.is_made,
        "nodes": [
            {
                "name": node.name,
                "kind": node.kind,
                "step_uuid": node.id,
                "state": node.state,
                "attempts": node.attempts,
                "max_attempts": node.max_attempts,
            }
            for node in found.nodes.values()
        ],
        "edges": [{"parent": parent, "child": child} for parent, child in found.edges],
    }


def of_transition(record: TransitionRecord) -> Document:
    """One transition of a task, or of the step that it names."""
    told = ("event", "from_state", "to_state", "actor", "reason", "processor", "at")
    return {"step_uuid": record.step_id, **_described(record, *told)}


def of_template(template: TaskTemplate) -> Document:
    """A template as listings show it. It comes with its pack."""
    return {
        **_described(template, "namespace", "name", "version", "description", "enabled"),
        "pack": template.pack.name if template.pack else None,
        "installed_at": template.installed_at,
    }


def of_one_template(template: TaskTemplate) -> Document:
    """A template with all that it says."""
    return of_template(template) | {
        "digest": template.digest,
        "identity_strategy": TemplateDefinition.of(template.definition).identity_strategy,
        "definition": template.definition,
    }


def _described(row: Any, *names: str) -> Document:
    return {name: getattr(row, name) for name in names}
