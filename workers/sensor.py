"""The sensor service: fires timers when they are due. Any number of them may run.

It keeps nothing in memory: what is due, and what has fired, is in the database. A timer that is
enabled while the service sleeps is seen within a second, and executors fire what no sensor service
does.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType

import structlog
from django.db import DatabaseError, InterfaceError, close_old_connections, connections

from orchestrator.automation import timers
from orchestrator.core import clock, database, publisher

log = structlog.get_logger(__name__)

LONGEST_SLEEP_SECONDS = 1.0


class Sensor:
    """One service, in the main thread of its process."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.stopping = threading.Event()

    def run(self) -> None:
        """Fire timers until a signal comes."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        database.wait_until_reachable()
        log.info("sensor ready.", name=self.name)
        while not self.stopping.is_set():
            self.stopping.wait(self._turn())
        publisher.flush()
        connections.close_all()

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self.stopping.set()

    def _turn(self) -> float:
        """Fire what is due; returns for how many seconds to sleep."""
        try:
            close_old_connections()
            if timers.fire_due(now=clock.now()) >= timers.MOST_AT_ONCE:
                return 0.0
            return self._seconds_until_next()
        except (DatabaseError, InterfaceError) as error:
            log.warning("timers not fired, trying again", error=repr(error))
            return LONGEST_SLEEP_SECONDS

    def _seconds_until_next(self) -> float:
        next_at = timers.next_due()
        if next_at is None:
            return LONGEST_SLEEP_SECONDS
        left = (next_at - clock.now()).total_seconds()
        return min(max(left, 0.0), LONGEST_SLEEP_SECONDS)


def run(name: str) -> None:
    """Run a sensor service until a signal comes."""
    Sensor(name).run()
