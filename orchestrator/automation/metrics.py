"""Prometheus metrics of automation."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from orchestrator.automation.criteria.scope import TOO_COSTLY, TOO_WIDE
from orchestrator.automation.models import Enforcement, Event, Timer
from orchestrator.automation.states import Refused
from orchestrator.core.metrics import Counter
from orchestrator.core.metrics.exposition import tallied
from orchestrator.core.metrics.gauges import Gauge

MOST_COUNTED = 100_000
"""Enough for every alert, and for the backlog at which events are refused."""

REJECTED = Counter(
    "muster_enforcements_rejected_total",
    "Answers of rules that could not be carried out, by the reason.",
    lambda: [*Refused, TOO_WIDE, TOO_COSTLY],
)
TALLIED = (REJECTED,)

UNEVALUATED = Gauge(
    "muster_events_unevaluated",
    f"Events that no rule was asked about yet, {MOST_COUNTED:,} at most.",
)
OLDEST_UNEVALUATED = Gauge(
    "muster_events_oldest_unevaluated_seconds",
    "The age of the oldest of them; 0 if there is none.",
)
OPEN = Gauge(
    "muster_enforcements_open",
    "Answers of rules that have neither an execution nor a reason for none, "
    f"{MOST_COUNTED:,} at most.",
)
OLDEST_OPEN = Gauge(
    "muster_enforcements_oldest_open_seconds",
    "The age of the oldest of them; 0 if there is none.",
)
TIMERS = Gauge("muster_timers_waiting", "Timers that will fire.")
TIMERS_LATE = Gauge(
    "muster_timers_late_seconds",
    "For how long the timer that is overdue the longest has been due; 0 if none is.",
)
METRICS = (*TALLIED, UNEVALUATED, OLDEST_UNEVALUATED, OPEN, OLDEST_OPEN, TIMERS, TIMERS_LATE)


def families(now: datetime) -> Iterator[Any]:
    """Every metric of automation, from the database as it is now."""
    yield from tallied(TALLIED)
    events, enforcements = Event.objects.unevaluated(), Enforcement.objects.open()
    yield UNEVALUATED.of(events.order_by()[:MOST_COUNTED].count())
    yield OLDEST_UNEVALUATED.of(_since(now, events.order_by("received_at"), "received_at"))
    yield OPEN.of(enforcements.order_by()[:MOST_COUNTED].count())
    yield OLDEST_OPEN.of(_since(now, enforcements.order_by("pk"), "created_at"))
    waiting = Timer.objects.filter(next_fire_at__isnull=False)
    yield TIMERS.of(waiting.count())
    yield TIMERS_LATE.of(_since(now, waiting.order_by("next_fire_at"), "next_fire_at"))


def _since(now: datetime, rows: Any, field: str) -> float:
    """The seconds since this time of the first row, if it has passed."""
    first = rows.values_list(field, flat=True).first()
    return max((now - first).total_seconds(), 0.0) if first else 0.0
