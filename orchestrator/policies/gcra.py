"""The generic cell rate algorithm: a rate with bursts, from one stored time.

A bucket stores the theoretical time of arrival: the time at which what was admitted so far would
have come at the even rate. One may start as long as that time is less than a burst ahead. The burst
is the limit itself, so a window of any place holds at most twice the limit, and a long time the
rate. See ITU-T I.371, annex A.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from orchestrator.policies import periods

MICROSECOND = timedelta(microseconds=1)

READERS_DIFFER_BY = timedelta(minutes=1)
"""A stored time that is further ahead than any could be, by more than this, was written before the
clock was set back."""


@dataclass(frozen=True)
class Rate:
    """So many in a window, and as many at once after a pause."""

    limit: int
    window: timedelta

    @property
    def interval(self) -> timedelta:
        """From one to the next at the even rate: in whole microseconds, and never too short."""
        return MICROSECOND * -(-(self.window // MICROSECOND) // self.limit)

    @property
    def burst(self) -> timedelta:
        """By so much the next one may be early."""
        return self.interval * (self.limit - 1)

    def places(self, stored: datetime | None, now: datetime) -> int:
        """The number of those that may start now."""
        early_by = now + self.burst - self._theoretical(stored, now)
        return max(0, early_by // self.interval + 1)

    def after(self, stored: datetime | None, now: datetime, started: int) -> datetime:
        """The time to store after so many have started."""
        return self._theoretical(stored, now) + self.interval * started

    def at(self, stored: datetime | None, now: datetime, ahead: int) -> datetime:
        """The earliest start of one that lets so many go first, as far as that is within a year."""
        ahead = min(ahead, periods.YEAR // self.interval)
        return self._theoretical(stored, now) - self.burst + self.interval * ahead

    def _theoretical(self, stored: datetime | None, now: datetime) -> datetime:
        latest = now + self.interval * self.limit
        if stored is None or stored > latest + READERS_DIFFER_BY:
            return now if stored is None else latest
        return max(stored, now)
