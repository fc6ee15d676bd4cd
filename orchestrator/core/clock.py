"""The database's clock, which alone decides. A machine's own clock decides nothing.

The database's clock is not trusted blindly either: somebody may set it. Its readings are compared
with the seconds that this machine has counted, and a function that ends the work of others checks
here that the clock has run steadily for long enough. See docs/adr/0020-clocks-that-are-set.md.
"""

from __future__ import annotations

from collections import deque
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import structlog
from django.conf import settings
from django.db import connection

from orchestrator.core.steady_clock import seconds_counted

log = structlog.get_logger(__name__)

ASK_EVERY_SECONDS = 1.0
ASK_SLOW_DATABASE_EVERY_SECONDS = 5.0
SLOW_SECONDS = 0.5
"""An answer that took longer is too imprecise."""

LEAST_STEP_SECONDS = 1.0

UNWATCHED_SECONDS = 6.0
"""After a longer time without a reading, nobody knows whether the clock was set and set back."""
MOST_REMEMBERED = 100
MOST_DRIFT = 1e-3
"""Two clocks that nobody sets drift apart by at most this fraction of the time; kernels adjust
theirs by up to half of it."""


class Reading(NamedTuple):
    """A reading of a clock, and the range of counted seconds in which it was taken."""

    at: datetime
    earliest: float
    latest: float

    @property
    def is_slow(self) -> bool:
        return self.latest - self.earliest > SLOW_SECONDS


class Step(NamedTuple):
    """A change of the clock: by how many seconds, forward or back, and when it was noticed."""

    seconds: float
    noticed: float


class Watch:
    """This process's knowledge of the clock: the last reading, and the steps that it saw."""

    def __init__(self) -> None:
        self.last: Reading | None = None
        self.steady_since: float | None = None
        self.watched_since = float("-inf")
        """The time at which the clock was read for the first time after it had not been for too
        long."""
        self.steps: deque[Step] = deque(maxlen=MOST_REMEMBERED)

    def note(self, reading: Reading) -> None:
        """Compare a reading with the one before it, which also makes it more precise."""
        last = self.last
        if last is None:
            self.last = reading
            self.steady_since = self.steady_since or reading.latest
        elif seconds := step_seconds(last, reading):
            self.last = reading
            self.steady_since = reading.latest
            self.steps.append(Step(seconds, reading.latest))
            log.warning("the database's clock was set", by_seconds=round(seconds, 3))
        else:
            if reading.earliest - last.latest > _unwatched_seconds():
                self.steady_since = self.watched_since = reading.latest
            self.last = narrowed(last, reading)


def _unwatched_seconds() -> float:
    """A process that maintenance alone has ask the clock asks it once in an interval."""
    interval_seconds: float = settings.MUSTER.maintenance_interval_seconds
    return max(UNWATCHED_SECONDS, 1.5 * interval_seconds)


def step_seconds(before: Reading, after: Reading) -> float:
    """The seconds by which the clock was set between two readings; 0 if it may have run normally.

    A slow database answers late, and a frozen one very late: only a difference that no moment
    between question and answer can explain is a step.
    """
    elapsed = (after.at - before.at).total_seconds()
    least, most = after.earliest - before.latest, after.latest - before.earliest
    tolerated = LEAST_STEP_SECONDS + MOST_DRIFT * abs(most)
    if elapsed > most + tolerated:
        return elapsed - most
    if elapsed < least - tolerated:
        return elapsed - least
    return 0.0


def narrowed(before: Reading, after: Reading) -> Reading:
    """The second reading, within the range that the first one leaves for it.

    A process that waits long for an answer, as its machine is busy, would else be as long behind
    the others.
    """
    counted_on = before.at + timedelta(seconds=after.latest - before.latest)
    late_by = (counted_on - after.at).total_seconds()
    late_by = min(max(late_by, 0.0), after.latest - after.earliest)
    return Reading(after.at + timedelta(seconds=late_by), after.earliest + late_by, after.latest)


watch = Watch()


def now() -> datetime:
    """Return the time of the database's clock, as an aware UTC datetime.

    PostgreSQL is asked every second; in between, the seconds that this machine has counted are
    added, never its own clock. Embedded, database and processes share one host and so one clock.
    """
    last = watch.last
    if last is None or connection.vendor != "postgresql":
        return asked_now()
    counted = seconds_counted()
    often = ASK_SLOW_DATABASE_EVERY_SECONDS if last.is_slow else ASK_EVERY_SECONDS
    if not 0 <= counted - last.latest < often:
        return asked_now()
    return last.at + timedelta(seconds=counted - last.latest)


def asked_now() -> datetime:
    """Ask the database for the time now, even if it was just asked.

    For functions that end the work of others: if the clock was set since it was last asked, all
    work would seem to be late.
    """
    ask = _ask_postgresql if connection.vendor == "postgresql" else _ask_host
    reading = ask()
    if reading.is_slow:
        reading = min(reading, ask(), key=lambda each: each.latest - each.earliest)
    watch.note(reading)
    last = watch.last or reading
    # counted from the answer, not from the question: a database that was frozen answers for now
    return last.at + timedelta(seconds=seconds_counted() - last.latest)


def steady_seconds() -> float:
    """The seconds for which this process has watched the clock without seeing a step."""
    return 0.0 if watch.steady_since is None else seconds_counted() - watch.steady_since


def was_set(*, within_seconds: float) -> bool:
    """Return True if this process saw the clock being set within this time."""
    return bool(_steps(within_seconds))


def displaced(*, within_seconds: float) -> tuple[timedelta, timedelta]:
    """The amounts by which times written before the clock was set seem too old, and too new."""
    steps = _steps(within_seconds)
    behind = sum(seconds for seconds in steps if seconds > 0)
    ahead = sum(-seconds for seconds in steps if seconds < 0)
    return timedelta(seconds=behind), timedelta(seconds=ahead)


class Running:
    """A clock that shows `at` when it is made, and continues from there as this machine counts.

    For a function that was given the time. It may be kept from going on at any statement, by a
    lock, a frozen database, or a network that has fallen silent: what it does afterwards happens
    at a later time, and the database's clock may have been set meanwhile.
    """

    def __init__(self, at: datetime) -> None:
        self.at, self._began = at, seconds_counted()

    def __call__(self) -> datetime:
        return self.at + timedelta(seconds=seconds_counted() - self._began)

    def was_set(self) -> bool:
        """Ask the database's clock; returns True if it was set since this one was made, or may have
        been set and set back. Then a time that was read before cannot be compared with what others
        have written since."""
        asked_now()
        seen = any(step.noticed >= self._began for step in tuple(watch.steps))
        return seen or watch.watched_since >= self._began


def _steps(within_seconds: float) -> list[float]:
    since = seconds_counted() - within_seconds
    return [step.seconds for step in tuple(watch.steps) if step.noticed > since]


def _ask_postgresql() -> Reading:
    with connection.cursor() as cursor:
        earliest = seconds_counted()  # not earlier: the connection may have been opened first
        cursor.execute("SELECT clock_timestamp()")
        (at,) = cursor.fetchone()
    return Reading(at, earliest, seconds_counted())


def _ask_host() -> Reading:
    earliest = seconds_counted()
    return Reading(datetime.now(UTC), earliest, seconds_counted())
