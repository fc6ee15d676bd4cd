"""Prometheus metrics of notifications."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from orchestrator.core.metrics import Counter
from orchestrator.core.metrics.exposition import tallied
from orchestrator.core.metrics.gauges import Gauge
from orchestrator.notifications.models import Listener

SENT = Counter(
    "muster_notifications_sent_total", "Notifications that were put in the line of a client."
)
GAPS = Counter(
    "muster_notifications_gaps_total",
    "How often a client was told that it has missed some, and has to read again.",
)
TALLIED = (SENT, GAPS)
LISTENERS = Gauge("muster_notifications_listeners", "Notifiers, and other processes that listen.")
CLIENTS = Gauge("muster_notifications_clients", "Open streams, of all notifiers.")
LAG = Gauge(
    "muster_notifications_lag_seconds",
    "From a change to its arrival at the notifier that was the last to hear.",
)
METRICS = (*TALLIED, LISTENERS, CLIENTS, LAG)


def families(now: datetime) -> Iterator[Any]:
    """Every metric of notifications, from the database as it is now."""
    yield from tallied(TALLIED)
    alive = list(Listener.objects.alive(now).values_list("clients", "lag_ms"))
    yield LISTENERS.of(len(alive))
    yield CLIENTS.of(sum(clients for clients, _ in alive))
    yield LAG.of(max((lag_ms for _, lag_ms in alive), default=0) / 1000)
