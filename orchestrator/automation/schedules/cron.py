"""The fields of cron: which dates fit, and at which times of these dates."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from typing import Any

from orchestrator.core.errors import MusterError
from orchestrator.core.redaction import quoted

MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")

MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
LENGTH_LIMIT = 500
"""Characters of one field, and of all fields in one text."""

LEAP_CYCLE_YEARS = range(2000, 2028)
"""Every date of a year on every day of the week."""


class InvalidField(MusterError):
    """A field of cron is none; the text says what was expected and found."""


@dataclass(frozen=True)
class Field:
    """One field: the numbers that fit."""

    numbers: frozenset[int]
    is_star: bool = False
    """It begins with `*`: it restricts nothing, or only by a step."""
    has_step: bool = False


@dataclass(frozen=True)
class Kind:
    """The values that a field may have in it."""

    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()
    first_name: int = 0
    """The number of the first name."""

    @property
    def expected(self) -> str:
        named = f" or {self.names[0]} to {self.names[-1]}" if self.names else ""
        return f"a number from {self.low} to {self.high}{named}"

    def number(self, text: str) -> int:
        """Read a number or a name. Raises InvalidField."""
        if text.lower() in self.names:
            return self.first_name + self.names.index(text.lower())
        if re.fullmatch(r"[0-9]{1,4}", text) and self.low <= int(text) <= self.high:
            return int(text)
        raise InvalidField(f"expected {self.expected}, found {quoted(text)}")


SECOND, MINUTE, HOUR = Kind("second", 0, 59), Kind("minute", 0, 59), Kind("hour", 0, 23)
DAY, MONTH = Kind("day", 1, 31), Kind("month", 1, 12, MONTHS, 1)
WEEKDAY = Kind("day_of_week", 0, 7, WEEKDAYS)
"""0 and 7 are Sunday."""
YEAR, WEEK = Kind("year", 1970, 2099), Kind("week", 1, 53)
ST2_WEEKDAY = Kind("day_of_week", 0, 6, (*WEEKDAYS[1:], WEEKDAYS[0]))
"""StackStorm's (APScheduler's): 0 is Monday."""

FIVE = (MINUTE, HOUR, DAY, MONTH, WEEKDAY)
SIX = (SECOND, *FIVE)
NAMED = (YEAR, MONTH, WEEK, DAY, ST2_WEEKDAY, HOUR, MINUTE, SECOND)
"""StackStorm's fields, the most significant first. Of those left out, the ones below the least
significant that is given are at their smallest number, the others at any."""


def read_field(kind: Kind, text: str) -> Field:
    """Read `*`, `5`, `mon-fri`, `*/10`, `8-18/2` or a list of them. Raises InvalidField."""
    if len(text) > LENGTH_LIMIT:
        raise InvalidField(f"expected at most {LENGTH_LIMIT} characters")
    numbers: set[int] = set()
    for part in text.split(","):
        numbers |= _part(kind, part.strip())
    return Field(frozenset(numbers), text.strip().startswith("*"), "/" in text)


def _part(kind: Kind, text: str) -> set[int]:
    body, slash, step_text = text.partition("/")
    step = 1
    if slash:
        if not re.fullmatch(r"[0-9]{1,4}", step_text) or not int(step_text):
            raise InvalidField(f"expected a step of 1 or more, found {quoted(step_text)}")
        step = int(step_text)
    if body == "*":
        return set(range(kind.low, kind.high + 1, step))
    first_text, dash, last_text = body.partition("-")
    first = kind.number(first_text)
    if not dash:
        return set(range(first, kind.high + 1, step)) if slash else {first}
    last = kind.number(last_text)
    if kind is WEEKDAY and last == 0 < first:
        last = 7  # fri-sun
    if last < first:
        raise InvalidField(f"expected a range from the smaller to the larger, found {quoted(body)}")
    return set(range(first, last + 1, step))


# --- dates ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Dates:
    """The dates that fit."""

    months: frozenset[int]
    days: frozenset[int]
    weekdays: frozenset[int]
    """0 is Sunday."""
    either: bool
    """A day of the month or one of the week is enough, as in every cron where both are given."""
    years: frozenset[int] | None = None
    weeks: frozenset[int] | None = None
    """Weeks of ISO 8601."""

    def fit(self, day: date) -> bool:
        """Return True if this date fits."""
        if day.month not in self.months:
            return False
        if self.years is not None and day.year not in self.years:
            return False
        if self.weeks is not None and day.isocalendar().week not in self.weeks:
            return False
        in_month, in_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return in_month or in_week if self.either else in_month and in_week

    @property
    def ever_fit(self) -> bool:
        """False if there is no such date, such as February 30."""
        years = LEAP_CYCLE_YEARS if self.years is None else sorted(self.years)
        return any(
            self.fit(date(year, 1, 1) + timedelta(days=number))
            for year in years
            for number in range(365 + (date(year, 12, 31).timetuple().tm_yday == 366))
        )

    @property
    def last_year(self) -> int:
        return 9_998 if self.years is None else max(self.years)


# --- times of a date -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Times:
    """The times of a date, in their order. They are counted, not listed: there may be 86,400."""

    hours: tuple[int, ...]
    minutes: tuple[int, ...]
    seconds: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.hours) * len(self.minutes) * len(self.seconds)

    def __getitem__(self, number: int) -> timedelta:
        """The time of this number, counted from midnight."""
        rest, second = divmod(number, len(self.seconds))
        hour, minute = divmod(rest, len(self.minutes))
        return timedelta(
            hours=self.hours[hour], minutes=self.minutes[minute], seconds=self.seconds[second]
        )

    def before(self, moment: time) -> int:
        """The number of times before this one."""
        hour = bisect_left(self.hours, moment.hour)
        count = hour * len(self.minutes) * len(self.seconds)
        if hour == len(self.hours) or self.hours[hour] != moment.hour:
            return count
        minute = bisect_left(self.minutes, moment.minute)
        count += minute * len(self.seconds)
        if minute == len(self.minutes) or self.minutes[minute] != moment.minute:
            return count
        return count + bisect_left(self.seconds, moment.second)


ONE_INSTANT = Times((0,), (0,), (0,))


@dataclass(frozen=True)
class Fields:
    """All fields of a schedule, for a clock that nobody sets."""

    dates: Dates
    times: Times
    by_the_clock: bool
    """The hours are fixed. Hours that are `*` or a step go on through changes of the clock."""

    def numbers(self, day: date, low: datetime, high: datetime) -> range:
        """The numbers of the times of this date that are in `[low, high)`."""
        if not self.dates.fit(day):
            return range(0)
        first = self.times.before(low.time()) if day == low.date() else 0
        last = self.times.before(high.time()) if day == high.date() else len(self.times)
        return range(first, last)

    def any_in(self, low: datetime, high: datetime) -> bool:
        """Return True if a time in `[low, high)` fits."""
        days = ((low + timedelta(days=n)).date() for n in range((high - low).days + 2))
        return any(self.numbers(day, low, high) for day in days if day <= high.date())


def read_text(text: str) -> Fields:
    """Read five fields, or six with seconds first, or a name such as `@daily`.

    Raises InvalidField.
    """
    if len(text) > LENGTH_LIMIT:
        raise InvalidField(f"expected at most {LENGTH_LIMIT} characters, found {len(text):,}")
    parts = MACROS.get(text.strip().lower(), text).split()
    kinds = {5: FIVE, 6: SIX}.get(len(parts))
    if kinds is None:
        raise InvalidField(f"expected five fields, or six with seconds first, found {len(parts)}")
    fields: dict[Kind, Field] = {}
    for number, (kind, part) in enumerate(zip(kinds, parts, strict=True), 1):
        try:
            fields[kind] = read_field(kind, part)
        except InvalidField as error:
            raise InvalidField(f"field {number}, {kind.name}: {error}") from None
    weekdays = Field(
        frozenset(number % 7 for number in fields[WEEKDAY].numbers), fields[WEEKDAY].is_star
    )
    either = not fields[DAY].is_star and not weekdays.is_star
    return _fields(fields, weekdays, either=either)


def read_named(values: Mapping[str, Any]) -> tuple[Fields | None, dict[str, str]]:
    """Read StackStorm's named fields, of which all must fit. Returns what is wrong by their
    names."""
    given = [number for number, kind in enumerate(NAMED) if kind.name in values]
    least = max(given, default=-1)
    fields, faults = {}, {}
    for number, kind in enumerate(NAMED):
        default = "*" if number < least else str(kind.low)
        try:
            fields[kind] = read_field(kind, _text(values.get(kind.name, default)))
        except InvalidField as error:
            faults[kind.name] = str(error)
    if faults:
        return None, faults
    for kind in (WEEK, YEAR):
        if kind.name not in values:
            fields.pop(kind)
    weekdays = fields[ST2_WEEKDAY]
    if ST2_WEEKDAY.name not in values:
        weekdays = Field(frozenset(range(7)), is_star=True)
    from_sunday = Field(frozenset((number + 1) % 7 for number in weekdays.numbers))
    return _fields(fields, from_sunday, either=False), {}


def _text(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise InvalidField(f"expected a text or a number, found {quoted(value)}")
    return str(value)


def _fields(fields: Mapping[Kind, Field], weekdays: Field, *, either: bool) -> Fields:
    any_second = Field(frozenset([0]))
    hours = fields[HOUR]
    dates = Dates(
        months=fields[MONTH].numbers,
        days=fields[DAY].numbers,
        weekdays=weekdays.numbers,
        either=either,
        years=fields[YEAR].numbers if YEAR in fields else None,
        weeks=fields[WEEK].numbers if WEEK in fields else None,
    )
    if not dates.ever_fit:
        raise InvalidField("expected dates that exist, found none that fits")
    times = Times(
        tuple(sorted(hours.numbers)),
        tuple(sorted(fields[MINUTE].numbers)),
        tuple(sorted(fields.get(SECOND, any_second).numbers)),
    )
    goes_on = hours.has_step or len(hours.numbers) == 24
    return Fields(dates, times, by_the_clock=not goes_on)
