"""Prometheus metrics of automation."""

from __future__ import annotations

from collections import Counter as Counts
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Model

from orchestrator.automation.criteria.scope import TOO_COSTLY, TOO_WIDE
from orchestrator.automation.hooks.deliveries import Outcome
from orchestrator.automation.models import Assignment, Enforcement, Event, Timer
from orchestrator.automation.models.events import SOURCES
from orchestrator.automation.states import AssignmentState, EnforcementState, Refused
from orchestrator.core.metrics import Counter
from orchestrator.core.metrics.exposition import tallied
from orchestrator.core.metrics.gauges import Gauge
from orchestrator.core.models.time_ordered import created_between

MOST_COUNTED = 100_000
"""Enough for every alert, and for the backlog at which events are refused."""
MINUTE = timedelta(minutes=1)
STATES = [state.value for state in EnforcementState]

REJECTED = Counter(
    "muster_enforcements_rejected_total",
    "Answers of rules that could not be carried out, by the reason.",
    lambda: [*Refused, TOO_WIDE, TOO_COSTLY],
)
DELIVERIES = Counter(
    "muster_hook_deliveries_total",
    "Deliveries to webhooks, by what became of them.",
    lambda: list(Outcome),
    label="outcome",
)
TALLIED = (REJECTED, DELIVERIES)

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
EVENTS_LATELY = Gauge(
    "muster_events_last_minute",
    f"Events that came in the last minute by their source, {MOST_COUNTED:,} at most.",
    "source",
)
ENFORCEMENTS_LATELY = Gauge(
    "muster_enforcements_last_minute",
    "Answers of rules that were made in the last minute by their state now, "
    f"{MOST_COUNTED:,} at most.",
    "state",
)
TIMERS = Gauge("muster_timers_waiting", "Timers that will fire.")
TIMERS_LATE = Gauge(
    "muster_timers_late_seconds",
    "For how long the timer that is overdue the longest has been due; 0 if none is.",
)
SENSORS = Gauge("muster_sensors", "Sensors and polls by their state.", "state")
SENSOR_EVENTS = Gauge(
    "muster_sensor_events", "Events that each sensor has reported since it was installed.", "sensor"
)
SENSOR_RESTARTS = Gauge(
    "muster_sensor_restarts", "How often each sensor has failed since it was installed.", "sensor"
)
OF_SENSORS = (SENSORS, SENSOR_EVENTS, SENSOR_RESTARTS)
METRICS = (
    *TALLIED, UNEVALUATED, OLDEST_UNEVALUATED, OPEN, OLDEST_OPEN, EVENTS_LATELY,
    ENFORCEMENTS_LATELY, TIMERS, TIMERS_LATE, *OF_SENSORS,
)  # fmt: skip


def families(now: datetime) -> Iterator[Any]:
    """Every metric of automation, from the database as it is now."""
    yield from tallied(TALLIED)
    events, enforcements = Event.objects.unevaluated(), Enforcement.objects.open()
    yield UNEVALUATED.of(events.order_by()[:MOST_COUNTED].count())
    yield OLDEST_UNEVALUATED.of(_since(now, events.order_by("received_at"), "received_at"))
    yield OPEN.of(enforcements.order_by()[:MOST_COUNTED].count())
    yield OLDEST_OPEN.of(_since(now, enforcements.order_by("pk"), "created_at"))
    yield EVENTS_LATELY.by(_lately(now, Event, "received_at", "source", SOURCES))
    yield ENFORCEMENTS_LATELY.by(_lately(now, Enforcement, "created_at", "state", STATES))
    waiting = Timer.objects.filter(next_fire_at__isnull=False)
    yield TIMERS.of(waiting.count())
    yield TIMERS_LATE.of(_since(now, waiting.order_by("next_fire_at"), "next_fire_at"))
    yield from _of_sensors()


def _lately(
    now: datetime, model: type[Model], made_at: str, column: str, known: Iterable[str]
) -> dict[str, int]:
    """The rows of the last minute, counted by a column: no write in the way of an event counts."""
    made = created_between(now - MINUTE, None, field=made_at)
    rows = model._default_manager.filter(made).order_by()
    counts = Counts(rows.values_list(column, flat=True)[:MOST_COUNTED])
    return {value: counts[value] for value in known}


def _of_sensors() -> Iterator[Any]:
    rows = Assignment.objects.order_by("sensor__ref")
    listed = list(rows.values_list("sensor__ref", "state", "events", "restarts"))
    states = Counts(state for _, state, _, _ in listed)
    yield SENSORS.by({state.value: states[state.value] for state in AssignmentState})
    yield SENSOR_EVENTS.by({ref: events for ref, _, events, _ in listed})
    yield SENSOR_RESTARTS.by({ref: restarts for ref, _, _, restarts in listed})


def _since(now: datetime, rows: Any, field: str) -> float:
    """The seconds since this time of the first row, if it has passed."""
    first = rows.values_list(field, flat=True).first()
    return max((now - first).total_seconds(), 0.0) if first else 0.0
