"""The ticks of a schedule, if nobody is late: intervals, cron and single dates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol
from zoneinfo import ZoneInfo

from orchestrator.automation.schedules import zones
from orchestrator.automation.schedules.cron import ONE_INSTANT, Fields, Times
from orchestrator.automation.schedules.zones import DAY, SECOND, Stretch

HORIZON_DAYS = 41 * 366
"""Only a list of years has a longer pause: this one is February 29 on one day of the week, across a
century."""


class Timing(Protocol):
    """A series of ticks. All times are in UTC."""

    def next_after(self, moment: datetime) -> datetime | None:
        """The first tick after this moment."""

    def count(self, after: datetime, upto: datetime) -> int:
        """The number of ticks in `(after, upto]`."""

    def newest(self, after: datetime, upto: datetime, limit: int) -> list[datetime]:
        """The newest ticks in `(after, upto]`, oldest first."""

    def canonical(self) -> Any:
        """The series as JSON: equal for series that are equal."""


@dataclass(frozen=True)
class Once:
    """One tick."""

    at: datetime

    def next_after(self, moment: datetime) -> datetime | None:
        return self.at if moment < self.at else None

    def count(self, after: datetime, upto: datetime) -> int:
        return int(after < self.at <= upto)

    def newest(self, after: datetime, upto: datetime, limit: int) -> list[datetime]:
        return [self.at] if self.count(after, upto) and limit else []

    def canonical(self) -> Any:
        return {"at": self.at.isoformat()}


@dataclass(frozen=True)
class Every:
    """Tick k is k intervals after the anchor. It never drifts."""

    interval: timedelta
    anchor: datetime

    def next_after(self, moment: datetime) -> datetime | None:
        return self._at(self._number(moment) + 1)

    def count(self, after: datetime, upto: datetime) -> int:
        return max(self._number(upto) - self._number(after), 0)

    def newest(self, after: datetime, upto: datetime, limit: int) -> list[datetime]:
        last = self._number(upto)
        first = max(self._number(after), last - limit)
        return [at for number in range(first + 1, last + 1) if (at := self._at(number))]

    def canonical(self) -> Any:
        return {"every_us": self.interval // timedelta(microseconds=1)}

    def _number(self, moment: datetime) -> int:
        """The number of the last tick up to this moment; below 0 before the anchor."""
        return max((moment - self.anchor) // self.interval, -1)

    def _at(self, number: int) -> datetime | None:
        try:
            return self.anchor + number * self.interval
        except OverflowError:
            return None


@dataclass(frozen=True)
class Run:
    """Ticks of one local date at one offset, from one number to another."""

    midnight: datetime
    """The moment that would be midnight at this offset."""
    times: Times
    numbers: range

    def __getitem__(self, index: int) -> datetime:
        return self.midnight + self.times[self.numbers[index]]


@dataclass(frozen=True)
class Cron:
    """Times of days in a time zone.

    With fixed hours, a time that a change of the clock leaves out is at the first moment after it,
    and one that is shown twice is the first of them. Otherwise there is a tick at every moment at
    which the clock shows a time that fits.
    """

    fields: Fields
    zone: ZoneInfo

    def next_after(self, moment: datetime) -> datetime | None:
        low = _second_after(moment)
        return next((run[0] for run in self._runs(low, self._horizon(low))), None)

    def count(self, after: datetime, upto: datetime) -> int:
        runs = self._runs(_second_after(after), _second_after(upto))
        return sum(len(run.numbers) for run in runs)

    def newest(self, after: datetime, upto: datetime, limit: int) -> list[datetime]:
        newest: list[datetime] = []
        for run in self._runs(_second_after(after), _second_after(upto), backward=True):
            wanted = min(limit - len(newest), len(run.numbers))
            newest += [run[-1 - index] for index in range(wanted)]
            if len(newest) == limit:
                break
        return newest[::-1]

    def canonical(self) -> Any:
        dates, times = self.fields.dates, self.fields.times
        return {
            "times": [times.hours, times.minutes, times.seconds],
            "dates": [
                sorted(each) if each is not None else None
                for each in (dates.months, dates.days, dates.weekdays, dates.years, dates.weeks)
            ],
            "either": dates.either,
            "by_the_clock": self.fields.by_the_clock,
            "zone": self.zone.key,
        }

    def _horizon(self, low: datetime) -> datetime:
        dates = self.fields.dates
        last = datetime(dates.last_year + 1, 1, 2, tzinfo=UTC)
        if dates.years is None and last - low > HORIZON_DAYS * DAY:
            last = low + HORIZON_DAYS * DAY
        return max(low, last)

    def _runs(self, low: datetime, high: datetime, *, backward: bool = False) -> Iterator[Run]:
        """The ticks in `[low, high)`, which are whole seconds."""
        first = low.replace(hour=0, minute=0, second=0)
        days = range((high - first) // DAY + 1)
        for number in reversed(days) if backward else days:
            day = first + number * DAY
            if not self._may_fit(day):
                continue
            runs = [
                run
                for stretch in zones.stretches(self.zone, day)
                for run in self._of_stretch(stretch, low, high)
            ]
            yield from reversed(runs) if backward else runs

    def _may_fit(self, day: datetime) -> bool:
        """Return False if no local date fits that is shown somewhere during this day of UTC."""
        fit = self.fields.dates.fit
        return any(fit((day + number * DAY).date()) for number in (0, -1, 1)) or (
            self.fields.by_the_clock and zones.change_on(self.zone, day) is not None
        )

    def _of_stretch(self, stretch: Stretch, low: datetime, high: datetime) -> Iterator[Run]:
        begin, end = max(stretch.low, low), min(stretch.high, high)
        if begin >= end:
            return
        first, last = zones.local(begin, stretch.offset), zones.local(end, stretch.offset)
        if self.fields.by_the_clock:
            if begin == stretch.low and self._was_left_out(stretch):
                yield Run(begin, ONE_INSTANT, range(1))
                first += SECOND
            first = max(first, stretch.repeats_until or first)
        day = first.replace(hour=0, minute=0, second=0)
        while day < last:
            if numbers := self.fields.numbers(day.date(), first, last):
                midnight = (day - stretch.offset).replace(tzinfo=UTC)
                yield Run(midnight, self.fields.times, numbers)
            day += DAY

    def _was_left_out(self, stretch: Stretch) -> bool:
        """Return True if a time that fits is in the gap before this stretch."""
        change = stretch.begins_with
        return (
            change is not None
            and change.is_gap
            and self.fields.any_in(change.shown_before, change.shown_after)
        )


def _second_after(moment: datetime) -> datetime:
    """The first whole second after this moment: ticks are on whole seconds."""
    return moment.replace(microsecond=0) + SECOND
