"""Prometheus metrics of queues."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from orchestrator.core.metrics.gauges import Gauge
from orchestrator.queues import figures
from orchestrator.queues.gates import metrics as of_gates
from orchestrator.queues.models import WorkQueue

WAITING = Gauge("muster_queue_waiting", "Executions of a queue that wait for a worker.", "queue")
RUNNING = Gauge(
    "muster_queue_running", "Executions of a queue that workers hold: sent or started.", "queue"
)
OLDEST = Gauge(
    "muster_queue_oldest_seconds",
    "The age of the execution of a queue that has waited longest; 0 if none waits.",
    "queue",
)
DEFERRED = Gauge(
    "muster_queue_deferred",
    "Executions of a queue that wait because their action said that it cannot begin now.",
    "queue",
)
METRICS = (WAITING, RUNNING, OLDEST, DEFERRED, *of_gates.METRICS)


def families(now: datetime) -> Iterator[Any]:
    """Every metric of queues, from the database as it is now. The default queue has its own."""
    names = list(WorkQueue.objects.in_use().values_list("name", flat=True))
    found = figures.loads(names) if names else {}
    yield WAITING.by({name: each.waiting for name, each in found.items()})
    yield RUNNING.by({name: each.running for name, each in found.items()})
    yield OLDEST.by({name: each.oldest_seconds(now) for name, each in found.items()})
    yield DEFERRED.by({name: each.deferred for name, each in found.items()})
    yield from of_gates.families(now)
