"""What tasks were given and gave, with the secrets taken out."""

from __future__ import annotations

from typing import Any

from orchestrator.core.redaction import redacted
from orchestrator.workflows.models import Step, Task, TaskTemplate


def context(task: Task) -> Any:
    """The context, by the template's `input_schema`."""
    return redacted(task.context, schema=task.template.definition.get("input_schema"))


def result(step: Step, template: TaskTemplate) -> Any:
    """The result, by the `result_schema` of the template's step."""
    return redacted(step.result, schema=_of_step(step, template).get("result_schema"))


def error(step: Step) -> Any:
    """Why the last attempt failed. No schema tells of it: names of secrets do."""
    return redacted(step.error)


def _of_step(step: Step, template: TaskTemplate) -> dict[str, Any]:
    steps: list[dict[str, Any]] = template.definition.get("steps", [])
    return next((each for each in steps if each.get("name") == step.template_step), {})
