"""Time zones: when their clocks are set, and what a local time means then."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

DAY, SECOND = timedelta(days=1), timedelta(seconds=1)


@dataclass(frozen=True)
class Change:
    """A moment at which a zone's clock is set."""

    at: datetime
    before: timedelta
    after: timedelta

    @property
    def shown_before(self) -> datetime:
        """The local time that the clock would have shown."""
        return local(self.at, self.before)

    @property
    def shown_after(self) -> datetime:
        return local(self.at, self.after)

    @property
    def is_gap(self) -> bool:
        return self.after > self.before


@dataclass(frozen=True)
class Stretch:
    """A stretch of time in which the clock runs steadily: `[low, high)`, within a day of UTC."""

    low: datetime
    high: datetime
    offset: timedelta
    begins_with: Change | None = None
    """The change with which it begins, if there is one."""
    repeats_until: datetime | None = None
    """Local times before this one were shown before, too."""


def local(moment: datetime, offset: timedelta) -> datetime:
    """The local time at this offset, without a zone."""
    return moment.replace(tzinfo=None) + offset


def offset_at(zone: ZoneInfo, moment: datetime) -> timedelta:
    return moment.astimezone(zone).utcoffset() or timedelta()


@lru_cache(maxsize=8_192)
def change_on(zone: ZoneInfo, day: datetime) -> Change | None:
    """The change within this day of UTC, given by its midnight. No zone has two."""
    low, high = day, day + DAY
    before, after = offset_at(zone, low), offset_at(zone, high)
    if before == after:
        return None
    while high - low > SECOND:
        middle = low + (high - low) // 2
        middle = middle.replace(microsecond=0)
        low, high = (middle, high) if offset_at(zone, middle) == before else (low, middle)
    return Change(high, before, after)


def stretches(zone: ZoneInfo, day: datetime) -> Iterator[Stretch]:
    """The stretches of a day of UTC, given by its midnight."""
    change, earlier = change_on(zone, day), change_on(zone, day - DAY)
    repeats = earlier.shown_before if earlier and not earlier.is_gap else None
    offset = offset_at(zone, day)
    if change is None:
        yield Stretch(day, day + DAY, offset, repeats_until=repeats)
        return
    yield Stretch(day, change.at, offset, repeats_until=repeats)
    repeats = None if change.is_gap else change.shown_before
    yield Stretch(change.at, day + DAY, change.after, change, repeats)


def instant(zone: ZoneInfo, naive: datetime) -> datetime:
    """The moment at which the clock shows this time.

    The first one if there are two; if there is none, the first moment after the gap.
    """
    moment = naive.replace(tzinfo=zone).astimezone(UTC)
    if moment.astimezone(zone).replace(tzinfo=None, fold=0) == naive:
        return moment
    midnight = moment.replace(hour=0, minute=0, second=0, microsecond=0)
    for day in (midnight, midnight - DAY):
        change = change_on(zone, day)
        if change and change.is_gap and change.shown_before <= naive < change.shown_after:
            return change.at
    return moment
