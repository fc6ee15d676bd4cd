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
    """End what is overdue, and dispatch again what its worker seems not to have heard of."""
    ended = executions.sweep(now=now)
    again = executions.dispatch_unclaimed(now=now, actor=executions.MONITOR)
    return ended | {"dispatched_again": again}


def check_heartbeats(*, now: datetime) -> Any:
    """Declare silent workers lost, settle what they had started, move what they had not."""
    return {
        "lost": [worker.name for worker in fleet.mark_stale(now=now)],
        "settled": executions.settle_lost(now=now),
        "released": executions.release_stranded(now=now),
    }


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
