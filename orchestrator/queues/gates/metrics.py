"""Prometheus metrics of gates."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from django.db.models import Count, Min, Sum
from django.db.models.functions import Coalesce

from orchestrator.core.metrics import Counter
from orchestrator.core.metrics.counters import Histogram
from orchestrator.core.metrics.exposition import tallied
from orchestrator.core.metrics.gauges import Gauge
from orchestrator.queues.gates import condition
from orchestrator.queues.gates.judging import Does
from orchestrator.queues.models import Keeper, Ticket

DELIVERIES = Counter(
    "muster_gate_deliveries_total",
    "Deliveries of gates, by what became of each.",
    lambda: [each.value for each in Does],
    label="outcome",
)
TOLD = Counter("muster_gate_told_total", "Task messages whose answer the broker has confirmed.")
FAILURES = Counter(
    "muster_gate_tell_failures_total", "Tries to answer that failed; each is repeated."
)
TELL_SECONDS = Histogram(
    "muster_gate_tell_seconds",
    "From the end of an execution that a task message asked for to the broker's confirm of its "
    "answer.",
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60, 600),
)
TALLIED = (DELIVERIES, TOLD, FAILURES, TELL_SECONDS)

UNTOLD = Gauge("muster_gate_untold", "Task messages of a queue whose answer is due.", "queue")
OLDEST_UNTOLD = Gauge(
    "muster_gate_oldest_untold_seconds",
    "For how long the answer that is due longest has been due.",
    "queue",
)
HELD = Gauge("muster_gate_held", "Deliveries that a broker waits for, over all keepers.", "broker")
KEEPERS = Gauge("muster_gate_keepers", "Keepers of gates that are up.", "broker")
CUT_OFF = Gauge(
    "muster_gate_cut_off",
    "1 for the queue of an open gate that takes nothing in: nobody keeps it, or its broker is away "
    "or refuses it.",
    "queue",
)
METRICS = (*TALLIED, UNTOLD, OLDEST_UNTOLD, HELD, KEEPERS, CUT_OFF)


def families(now: datetime) -> Iterator[Any]:
    """Every metric of gates, from the database as it is now."""
    yield from tallied(TALLIED)
    since = Coalesce("execution__ended_at", "created_at")
    due = Ticket.objects.over().order_by().values_list("gate__queue__name")
    rows = list(due.annotate(number=Count("pk"), since=Min(since)))
    yield UNTOLD.by({name: number for name, number, _ in rows})
    yield OLDEST_UNTOLD.by(
        {name: max(0.0, (now - since).total_seconds()) for name, _, since in rows}
    )
    keepers = Keeper.objects.alive(now).order_by().values_list("broker")
    found = list(keepers.annotate(number=Count("pk"), held=Sum("held")))
    yield HELD.by({broker: held for broker, _, held in found})
    yield KEEPERS.by({broker: number for broker, number, _ in found})
    yield CUT_OFF.by({each.queue: 1 for each in condition.cut_off(now=now)})
