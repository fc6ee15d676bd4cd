"""Prometheus metrics of bulk orders."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from orchestrator.bulk.models import BulkOrder
from orchestrator.core.metrics.gauges import Gauge

MOST_COUNTED = 10_000

OPEN = Gauge("muster_bulk_orders_open", f"Bulk orders not ended yet, {MOST_COUNTED:,} at most.")
WAITS = Gauge(
    "muster_bulk_wait_seconds",
    "For how long the bulk order that waits longest has waited for a batch; 0 if none is open.",
)
METRICS = (OPEN, WAITS)


def families(now: datetime) -> Iterator[Any]:
    """Every metric of bulk orders, from the database as it is now."""
    yield OPEN.of(BulkOrder.objects.open().order_by()[:MOST_COUNTED].count())
    first = BulkOrder.objects.in_turn().values_list("worked_at", "created_at").first()
    since = first and (first[0] or first[1])
    yield WAITS.of(max((now - since).total_seconds(), 0.0) if since else 0.0)
