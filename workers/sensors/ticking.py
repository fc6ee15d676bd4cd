"""Timers of the sensor service: fired when they are due. Any number of services may do it.

Nothing is kept in memory: what is due, and what has fired, is in the database. A timer that is
enabled while the service sleeps is seen within a second, and executors fire what no sensor service
does.
"""

from __future__ import annotations

import threading

from django.db import close_old_connections, connections

from orchestrator.automation import timers
from orchestrator.core import clock, outages

log = outages.get_logger(__name__)

LONGEST_SLEEP_SECONDS = 1.0


def fire_until(stopping: threading.Event) -> None:
    """Fire timers until the event is set."""
    while not stopping.is_set():
        stopping.wait(_turn())


def _turn() -> float:
    """Fire what is due; returns for how many seconds to sleep."""
    try:
        close_old_connections()
        if timers.fire_due(now=clock.now()) >= timers.MOST_AT_ONCE:
            return 0.0
        return _seconds_until_next()
    except Exception:  # whatever it is, timers are fired again
        log.exception("timers not fired, trying again")
        connections.close_all()
    return LONGEST_SLEEP_SECONDS


def _seconds_until_next() -> float:
    next_at = timers.next_due()
    if next_at is None:
        return LONGEST_SLEEP_SECONDS
    left = (next_at - clock.now()).total_seconds()
    return min(max(left, 0.0), LONGEST_SLEEP_SECONDS)
