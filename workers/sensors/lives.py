"""One life of a sensor or a poll: a thread with a lease, from its start to its end."""

from __future__ import annotations

import enum
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import structlog
from django.db import DataError, IntegrityError, connections
from django.db import Error as DatabaseError

from orchestrator.automation.models import Assignment
from orchestrator.automation.recording import EventKeyFreed, TooManyEvents, require_room
from orchestrator.automation.sensors import assignments, reports
from orchestrator.automation.sensors.assignments import Lease
from orchestrator.automation.sensors.reports import LeaseLost, Report
from orchestrator.core import clock
from orchestrator.core.errors import MusterError
from workers.isolated import results
from workers.sensors.journal import Journal

log = structlog.get_logger(__name__)

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.1, 2.0
READY_SECONDS = 10.0
"""A sensor that lives for so long runs, whether it has reported anything or not."""


class Order(enum.Enum):
    """The order that the supervisor gives to a life."""

    GO_ON = 0
    STOP = 1
    """The service stops, or the sensor is to: take the last lines, and end."""
    KILL = 2
    """The lease is lost: end at once, record nothing."""


class Failed(MusterError):
    """The sensor ended, or was ended, and is to start again after a while."""


class Life(threading.Thread):
    """A thread that runs one sensor as long as its lease holds."""

    has_process = False
    """The next life waits until that of this one has ended."""

    def __init__(self, row: Assignment, *, actor: str) -> None:
        super().__init__(name=row.sensor.ref, daemon=True)
        self.lease = Lease(row.pk, row.fence, row.sensor)
        self.cursor: Mapping[str, Any] = row.cursor
        self.actor = actor
        self.order = Order.GO_ON
        self.told = threading.Event()
        self.journal = Journal(row.sensor)
        self.is_ready = False
        self.began_at = time.monotonic()
        self._pause_seconds = FIRST_PAUSE_SECONDS

    def tell(self, order: Order) -> None:
        """Have it end. From any thread."""
        self.order = order
        self.told.set()
        self.wake()

    def wake(self) -> None:
        """Interrupt its waiting, where that is not done by `told`."""

    def reconfigure(self) -> None:
        """Rules have changed: what it watches may have, too."""

    def run(self) -> None:
        try:
            problem = results.text(self.journal.masked(self._live_to_the_end()))
            if problem and self.order == Order.GO_ON:
                log.warning("sensor failed", sensor=self.lease.sensor.ref, problem=problem)
                self.journal.note(f"{problem}; it starts again after a while")
                self._persist(lambda: self._fail(problem))
            self.journal.write(at_end=True)
        finally:
            connections.close_all()

    def _live_to_the_end(self) -> str:
        """Run it; returns why it failed, empty if it was told to end."""
        try:
            self.live()
        except LeaseLost:
            self.order = Order.KILL
        except MusterError as error:
            return str(error)
        except DatabaseError:
            return "the database did not answer at its start"
        except Exception as error:  # noqa: BLE001 - logged, and the sensor starts again
            # its text is left out: it may quote the value of a key, in a form that nobody masks
            fault, at = type(error).__name__, "".join(traceback.format_tb(error.__traceback__))
            log.error("sensor given up for now", sensor=self.lease.sensor.ref, fault=fault, at=at)
            return f"a fault of Muster: {fault}"
        return ""

    def live(self) -> None:
        """Run it until it is told to end. Raises Failed and LeaseLost."""
        raise NotImplementedError

    # --- what is written

    def record(
        self, found: list[Report], *, cursor: Mapping[str, Any] | None, refused: int = 0
    ) -> bool:
        """Record events with the cursor; False if that has to be tried again after a pause. Raises
        LeaseLost, and Failed if that is of no use."""
        try:
            if found:
                require_room()
            texts = reports.record(
                self.lease, found, cursor=cursor, refused=refused, now=clock.now()
            )
        except (DataError, IntegrityError) as error:
            # it would be the same again and again, and nobody would look
            log.warning("events refused", sensor=self.lease.sensor.ref, error=repr(error)[:200])
            _drop_broken_connection()
            raise Failed("the database refuses what it reports") from None
        except (DatabaseError, TooManyEvents, EventKeyFreed) as error:
            log.info("events wait", sensor=self.lease.sensor.ref, error=repr(error)[:200])
            _drop_broken_connection()
            return False
        self._pause_seconds = FIRST_PAUSE_SECONDS
        for text in texts:
            self.journal.note(f"refused: {text}")
        if cursor is not None:
            self.cursor = cursor
        return True

    def next_pause(self) -> float:
        """For how many seconds to wait before the next attempt."""
        seconds = self._pause_seconds
        self._pause_seconds = min(2 * seconds, LONGEST_PAUSE_SECONDS)
        return seconds

    def note_ready(self) -> None:
        """It runs: its first line was recorded, or it has lived for long enough."""
        if self.is_ready:
            return
        try:
            assignments.ready(self.lease, now=clock.now(), actor=self.actor)
        except DatabaseError:
            _drop_broken_connection()
            return
        self.is_ready = True

    @property
    def lived_seconds(self) -> float:
        """For how long it has done something."""
        return time.monotonic() - self.began_at

    def _fail(self, problem: str) -> None:
        lived = timedelta(seconds=self.lived_seconds)
        assignments.fail(self.lease, problem, lived=lived, now=clock.now(), actor=self.actor)

    def _persist(self, write: Callable[[], None]) -> None:
        """Write what must be written, however long the database is away."""
        while True:
            try:
                write()
                return
            except (DataError, IntegrityError) as error:
                # it would be the same again and again; the supervisor reports a life that is over
                log.error("not recorded", sensor=self.lease.sensor.ref, error=repr(error)[:200])
                _drop_broken_connection()
                return
            except DatabaseError:
                _drop_broken_connection()
            self.told.wait(self.next_pause())
            if self.order != Order.GO_ON:
                return


def _drop_broken_connection() -> None:
    connections["default"].close()
