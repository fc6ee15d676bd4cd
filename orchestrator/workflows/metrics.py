"""Prometheus metrics of tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from django.conf import settings

from orchestrator.core.metrics import Counter, Histogram
from orchestrator.core.metrics.exposition import counted, gauge, tallied
from orchestrator.workflows.models import Task
from orchestrator.workflows.states import TASKS, TaskState


def _limits() -> Iterable[str]:
    """The names of the limits that a task may be over."""
    return list(settings.MUSTER.task_limits_minutes)


STALE_DETECTED = Counter(
    "muster_staleness_tasks_detected_total",
    "Tasks that were found over a limit, by the limit.",
    _limits,
)
STALE_TO_ERROR = Counter(
    "muster_staleness_tasks_transitioned_to_error_total",
    "Tasks that were moved to error for it, by the limit.",
    _limits,
)
DETECTION_RUNS = Counter(
    "muster_staleness_detection_runs_total", "Runs of the staleness detection."
)
DETECTION_SECONDS = Histogram(
    "muster_staleness_detection_duration_seconds",
    "How long a run of the staleness detection took.",
    buckets=(0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
)
TALLIED = (STALE_DETECTED, STALE_TO_ERROR, DETECTION_RUNS, DETECTION_SECONDS)


def families(now: datetime) -> Iterator[Any]:
    """Every metric of tasks, from the database as it is now."""
    yield from tallied(TALLIED)
    yield gauge(
        "muster_tasks_open",
        "Tasks that have not ended.",
        "state",
        counted(Task.objects.open(), "state", sorted(set(TaskState) - TASKS.ended)),
    )
