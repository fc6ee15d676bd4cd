"""What beat schedules, by name, and the rule that makes a missed tick harmless.

Beat, a second beat and each executor's watchdog all end here. A tick that somebody took within
half an interval is not taken again, so the functions run once an interval whoever asks.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings

from orchestrator import dead_letters, executions, fleet
from orchestrator.models import Tick


def check_timeouts(*, now: datetime) -> Any:
    """End what is overdue."""
    return executions.sweep(now=now)


def check_heartbeats(*, now: datetime) -> Any:
    """Declare silent workers lost, and settle what they had started."""
    lost = fleet.mark_stale(now=now)
    return {"lost": [worker.name for worker in lost], "settled": executions.settle_lost(now=now)}


def drain_dead_letters(*, now: datetime) -> Any:
    """Turn dead letters into ended executions and entries."""
    return dead_letters.drain(now=now)


def retire_workers(*, now: datetime) -> Any:
    """Remove the queues of workers that are long gone."""
    return fleet.retire_gone(now=now)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "muster.check_timeouts": check_timeouts,
    "muster.check_heartbeats": check_heartbeats,
    "muster.drain_dead_letters": drain_dead_letters,
    "muster.retire_workers": retire_workers,
}


def run(name: str, *, now: datetime, missed: int = 0) -> Any:
    """Run one function unless it ran lately; returns its result, or None when it was not due.

    `missed`: how many whole intervals must have gone by, as the watchdog asks for.
    """
    interval = timedelta(seconds=settings.MUSTER.maintenance_interval_seconds)
    not_within = interval * missed if missed else interval / 2
    if not Tick.objects.claim(name=name, now=now, not_within=not_within):
        return None
    return FUNCTIONS[name](now=now)
