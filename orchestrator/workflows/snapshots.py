"""Tasks as the subjects of investigations: snapshots with all steps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from orchestrator.core.investigations import Subject
from orchestrator.core.redaction import redacted
from orchestrator.workflows.models import Step, Task, TaskLimit
from orchestrator.workflows.models.staleness import DURATION
from orchestrator.workflows.task_templates.definitions import overridden

KIND = "task"
TEXT_LIMIT = 2_000
"""The most characters of a text in an error; the end is kept too, as it names the cause."""

OF_STEP = ("name", "retry", "timeout_seconds")
"""The keys of a template's step that a snapshot has."""


def take(ids: Collection[UUID], *, now: datetime) -> list[Subject]:
    """Those of these tasks that exist."""
    return subjects(list(Task.objects.filter(pk__in=ids).select_related("template")), now=now)


def subjects(tasks: Sequence[Task], *, now: datetime) -> list[Subject]:
    """Build subjects: each task as it is now, with all of its steps. The templates are loaded
    already.

    Two queries for any number of tasks.
    """
    steps: dict[UUID, list[dict[str, Any]]] = defaultdict(list)
    rows = Step.objects.filter(task__in=tasks).select_related("execution").order_by("pk")
    for step in rows.defer("result", "batch", "execution__parameters", "execution__result"):
        steps[step.task_id].append(_step(step))
    limits = _limits(tasks)
    return [
        Subject(
            kind=KIND,
            id=task.pk,
            name=task.template.ref,
            state=str(task.state),
            snapshot=_task(task, steps[task.pk], limits, now),
        )
        for task in tasks
    ]


def _task(
    task: Task,
    steps: list[dict[str, Any]],
    limits: Mapping[tuple[int, str, str], float],
    now: datetime,
) -> dict[str, Any]:
    template = task.template

    def limit(name: str) -> float | None:
        base = limits.get((task.template_id, "", name))
        return limits.get((task.template_id, task.environment, name), base)

    return {
        "task_uuid": str(task.pk),
        "namespace": template.namespace,
        "task_name": template.name,
        "version": template.version,
        "template": template.ref,
        "environment": task.environment,
        "current_state": str(task.state),
        "time_in_state_minutes": _minutes(task.clock_started_at, now),
        "threshold_minutes": limit(task.state) or limit(DURATION),
        "age_minutes": _minutes(task.created_at, now),
        "max_duration_minutes": limit(DURATION),
        "priority": task.priority,
        "correlation_id": task.correlation_id,
        "template_configuration": _configuration(task),
        "steps": steps,
        "detected_at": now.isoformat(),
    }


def _configuration(task: Task) -> dict[str, Any] | None:
    """The template's metadata, and what it states about the time that its tasks and steps may take,
    as it is in the task's environment; None for a definition that cannot be read."""
    try:
        values = overridden(task.template.definition, task.environment)
        steps = [{key: step[key] for key in OF_STEP if key in step} for step in values["steps"]]
    except Exception:  # noqa: BLE001 - that may be why the task is given up, which must not fail
        return None
    return {
        "lifecycle": values.get("lifecycle", {}),
        "metadata": _shortened(redacted(values.get("metadata", {}))),
        "steps": [step for step in steps if len(step) > 1],
    }


def _step(step: Step) -> dict[str, Any]:
    execution = step.execution
    return {
        "step_uuid": str(step.pk),
        "name": step.name,
        "current_state": str(step.state),
        "attempts": step.attempts,
        "max_attempts": step.max_attempts,
        "next_retry_at": _text(step.next_retry_at),
        "last_failure_at": _text(step.last_failure_at),
        "last_error": _shortened(redacted(step.error)),
        "execution_id": str(execution.pk) if execution else None,
        "execution_status": str(execution.status) if execution else None,
        "execution_reason": execution.reason if execution else None,
        "execution_wait_reason": execution.wait_reason if execution else None,
    }


def _limits(tasks: Sequence[Task]) -> dict[tuple[int, str, str], float]:
    rows = TaskLimit.objects.filter(template_id__in={task.template_id for task in tasks})
    return {(row.template_id, row.environment, row.limit_name): row.minutes for row in rows}


def _shortened(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _shortened(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_shortened(item) for item in value]
    if isinstance(value, str) and len(value) > TEXT_LIMIT:
        half = TEXT_LIMIT // 2
        return f"{value[:half]} ... {len(value) - TEXT_LIMIT:,} more ... {value[-half:]}"
    return value


def _minutes(since: datetime, now: datetime) -> float:
    return max(0.0, round((now - since).total_seconds() / 60, 2))


def _text(at: datetime | None) -> str | None:
    return at.isoformat() if at else None
