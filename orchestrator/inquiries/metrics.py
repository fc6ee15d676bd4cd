"""Prometheus metrics of inquiries."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from orchestrator.core.metrics import Counter
from orchestrator.core.metrics.exposition import tallied
from orchestrator.core.metrics.gauges import Gauge
from orchestrator.inquiries.models import Inquiry
from orchestrator.inquiries.states import TERMINAL

MOST_COUNTED = 100_000

ENDED = Counter(
    "muster_inquiries_ended_total",
    "Inquiries that ended, by the way in which they did.",
    lambda: sorted(TERMINAL),
)
TALLIED = (ENDED,)

OPEN = Gauge("muster_inquiries_open", f"Inquiries without an answer, {MOST_COUNTED:,} at most.")
OVERDUE = Gauge(
    "muster_inquiries_overdue_seconds",
    "For how long the inquiry that should have timed out first has been overdue; 0 if none is.",
)
METRICS = (*TALLIED, OPEN, OVERDUE)


def families(now: datetime) -> Iterator[Any]:
    """Every metric of inquiries, from the database as it is now."""
    yield from tallied(TALLIED)
    yield OPEN.of(Inquiry.objects.open().order_by()[:MOST_COUNTED].count())
    first = Inquiry.objects.overdue(now).values_list("expires_at", flat=True).first()
    yield OVERDUE.of(max((now - first).total_seconds(), 0.0) if first else 0.0)
