"""A timer's schedule: its ticks, those that are due, and those that are caught up."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import NamedTuple

from orchestrator.automation.schedules.timings import Once, Timing

LAST, ALL, NONE = CATCH_UPS = ("last", "all", "none")

MICROSECOND = timedelta(microseconds=1)
BEGINNING = datetime(1, 1, 3, tzinfo=UTC)


class Tick(NamedTuple):
    """One tick that is due."""

    scheduled_at: datetime
    """Its nominal time, in UTC."""
    missed: int
    """The ticks before it, and after the one that fired before it, that will not fire any more."""


class Due(NamedTuple):
    """The ticks that are due, oldest first, and the moment from which the next one is."""

    ticks: tuple[Tick, ...]
    next_at: datetime | None
    """None: there are no more."""


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """A timer's schedule. Everything follows from it and the moments that are passed in: every
    process computes the same."""

    timing: Timing
    timezone: str = "UTC"
    created_at: datetime | None = None
    start_at: datetime | None = None
    end_at: datetime | None = None
    jitter_seconds: int = 0
    catch_up: str = LAST
    max_catch_up: int = 100
    grace_seconds: int = 60

    @cached_property
    def digest(self) -> str:
        """The digest that tells schedules with different ticks apart. The treatment of late ones is
        no part of it."""
        meaning = {
            "timing": self.timing.canonical(),
            "start_at": self.start_at.isoformat() if self.start_at else None,
            "end_at": self.end_at.isoformat() if self.end_at else None,
            "jitter_seconds": self.jitter_seconds,
        }
        text = json.dumps(meaning, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def key(self, scheduled_at: datetime) -> str:
        """The key of a tick's event: whoever computes the tick, it is the same."""
        return f"{self.digest[:32]}:{scheduled_at.astimezone(UTC).isoformat()}"

    def next_after(self, moment: datetime) -> datetime | None:
        """The first tick after this moment, at its nominal time."""
        if self.start_at and moment < self.start_at:
            moment = self.start_at - MICROSECOND
        tick = self.timing.next_after(moment.astimezone(UTC))
        return None if tick is None or (self.end_at and tick >= self.end_at) else tick

    def fires_at(self, scheduled_at: datetime) -> datetime:
        """The moment from which a tick is due: its nominal time and its part of the jitter."""
        if not self.jitter_seconds:
            return scheduled_at
        digest = hashlib.sha256(self.key(scheduled_at).encode()).digest()
        part = int.from_bytes(digest[:8], "big") / 2**64
        return scheduled_at + timedelta(seconds=round(part * self.jitter_seconds, 3))

    def due(self, last_fired: datetime | None, now: datetime) -> Due:
        """Find the ticks that are due and have not fired, and when to look again.

        `last_fired` is the nominal time of the last tick that fired or was passed over; None if
        there was none since the timer was created. Ticks fire in their order: one whose jitter is
        short waits for one before it whose jitter is long.
        """
        since = self._since(last_fired, now)
        upto, waiting = self._upto(since, now)
        ticks = self._caught_up(since, upto, now)
        if waiting is None:
            following = self.next_after(max(since, upto))
            waiting = self.fires_at(following) if following else None
        return Due(ticks, waiting)

    def _since(self, last_fired: datetime | None, now: datetime) -> datetime:
        if last_fired is not None:
            return last_fired.astimezone(UTC)
        if isinstance(self.timing, Once):
            return BEGINNING  # fires, also if it was past when it was created
        return (self.created_at or now).astimezone(UTC)

    def _upto(self, since: datetime, now: datetime) -> tuple[datetime, datetime | None]:
        """The moment up to which nominal ticks are due; and, if jitter holds one up, when it is
        due."""
        now = now.astimezone(UTC)
        if self.jitter_seconds:
            tick = self.next_after(max(since, now - timedelta(seconds=self.jitter_seconds)))
            while tick is not None and tick <= now:
                if (fires_at := self.fires_at(tick)) > now:
                    return tick - MICROSECOND, fires_at
                tick = self.next_after(tick)
        return now, None

    def _caught_up(self, since: datetime, upto: datetime, now: datetime) -> tuple[Tick, ...]:
        """The ticks in `(since, upto]` that fire. `missed` of the first one counts the others."""
        since, upto = self._within(since, upto)
        if upto <= since:
            return ()
        limit = 1 if self.catch_up == LAST else self.max_catch_up
        newest = self.timing.newest(since, upto, limit)
        if self.catch_up == NONE:
            oldest = now - timedelta(seconds=self.grace_seconds)
            newest = [tick for tick in newest if self._is_in_grace(tick, oldest)]
        if not newest:
            return ()
        missed = self.timing.count(since, newest[0]) - 1
        return tuple(Tick(at, missed if number == 0 else 0) for number, at in enumerate(newest))

    def _is_in_grace(self, tick: datetime, oldest: datetime) -> bool:
        is_new = self.created_at is None or tick >= self.created_at
        return is_new and self.fires_at(tick) >= oldest

    def _within(self, since: datetime, upto: datetime) -> tuple[datetime, datetime]:
        """Cut to the window of the schedule."""
        if self.start_at:
            since = max(since, self.start_at.astimezone(UTC) - MICROSECOND)
        if self.end_at:
            upto = min(upto, self.end_at.astimezone(UTC) - MICROSECOND)
        return since, upto
