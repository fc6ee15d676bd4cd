"""Prometheus metrics of tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from django.conf import settings

from orchestrator.core.metrics import Counter, Histogram
from orchestrator.core.metrics.exposition import counted, tallied
from orchestrator.core.metrics.gauges import Gauge
from orchestrator.workflows.models import Task, TaskLimit
from orchestrator.workflows.models.views import WARNING_FROM
from orchestrator.workflows.states import TASKS, TaskState

MOST_COUNTED = 1_000
"""Enough for every alert; a scrape must not read all open tasks."""


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


TASKS_OPEN = Gauge("muster_tasks_open", "Tasks that have not ended.", "state")
NEAR_LIMIT = Gauge(
    "muster_tasks_near_limit",
    f"Open tasks without a pending entry that have used {WARNING_FROM:.0%} of a limit of their "
    f"time (`warning`), or all of it (`stale`): of each limit of each template {MOST_COUNTED:,} at "
    "most.",
    "health",
)
METRICS = (*TALLIED, TASKS_OPEN, NEAR_LIMIT)


def families(now: datetime) -> Iterator[Any]:
    """Every metric of tasks, from the database as it is now."""
    yield from tallied(TALLIED)
    known = sorted(set(TaskState) - TASKS.ended)
    yield TASKS_OPEN.by(counted(Task.objects.open(), "state", known))
    yield NEAR_LIMIT.by(TaskLimit.objects.count_near(now=now, most=MOST_COUNTED))
