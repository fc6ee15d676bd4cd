"""Values of searches that are ranges: of durations, times and whole numbers. Knows no database."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, TypeVar

T = TypeVar("T")
U = TypeVar("U")

OPERATOR = re.compile(r"(>=|<=|>|<)(.+)", re.DOTALL)

UNIT_MS = {
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 604_800_000,
}
AMOUNT = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)(ms|min|[smhdw])")
LONGEST_MS = 100 * 366 * UNIT_MS["d"]
LARGEST = 2**31 - 1
YEARS = range(1970, 9001)

DURATION = "a duration with its unit, such as 200ms, 5s, 1h30m or 2d"
MOMENT = "a time in UTC, such as 2026-11-21 or 2026-11-21T14:05, or an age such as 1h"

FORMATS = {
    "%Y-%m-%d": timedelta(days=1),
    "%Y-%m-%dT%H:%M": timedelta(minutes=1),
    "%Y-%m-%dT%H:%M:%S": timedelta(seconds=1),
}
"""The forms in which a time may be written, and for how long it then lasts."""


class Unreadable(Exception):
    """A value that cannot be read; its text says what is expected."""


class OutOfRange(Unreadable):
    """A value that can be read, and is too small or too large."""


@dataclass(frozen=True)
class Range(Generic[T]):
    """From `low` to `high`; None is open. Each end belongs to it if its flag says so."""

    low: T | None = None
    high: T | None = None
    has_low: bool = True
    has_high: bool = True

    def map(self, change: Callable[[T], U]) -> Range[U]:
        """The range between the changed ends."""
        low = None if self.low is None else change(self.low)
        high = None if self.high is None else change(self.high)
        return Range(low, high, self.has_low, self.has_high)

    def mirrored(self, change: Callable[[T], U]) -> Range[U]:
        """The same for a change that turns the order round: an age into a time."""
        turned = self.map(change)
        return Range(turned.high, turned.low, turned.has_high, turned.has_low)

    def lookups(self, field: str) -> dict[str, Any]:
        """The lookups of a field that is in the range."""
        found: dict[str, Any] = {}
        if self.low is not None:
            found[f"{field}__{'gte' if self.has_low else 'gt'}"] = self.low
        if self.high is not None:
            found[f"{field}__{'lte' if self.has_high else 'lt'}"] = self.high
        return found


def duration(text: str) -> timedelta:
    """Read `1h30m`. Raises Unreadable."""
    amounts = AMOUNT.findall(text)
    if not amounts or "".join(f"{number}{unit}" for number, unit in amounts) != text:
        raise Unreadable(f"expected {DURATION}")
    total_ms = sum(float(number) * UNIT_MS[unit] for number, unit in amounts)
    if total_ms > LONGEST_MS:
        raise OutOfRange("expected at most 100 years")
    return timedelta(milliseconds=total_ms)


def durations(text: str) -> Range[timedelta]:
    """Read `>5s`, `<=1m` or `5s..1m`. Raises Unreadable."""
    found = _range(text, duration)
    if found is None:
        duration(text)
        raise Unreadable(f"expected a comparison: >{text}, <{text} or {text}..")
    return found


def whole_numbers(text: str) -> Range[int]:
    """Read `3`, `>1` or `2..4`. Raises Unreadable."""
    found = _range(text, whole_number)
    return Range(whole_number(text), whole_number(text)) if found is None else found


def whole_number(text: str) -> int:
    """Read a whole number. Raises Unreadable."""
    if not (text.isascii() and text.isdigit() and len(text) <= 10 and int(text) <= LARGEST):
        raise Unreadable("expected a whole number")
    return int(text)


def times(text: str, now: datetime) -> Range[datetime]:
    """Read a range of times. Raises Unreadable.

    Ages count back from now: `<1h` is the last hour. A date is all of that day, a minute all of
    that minute: `2026-11-21`, `2026-11-21..2026-11-22`, `>2026-11-21T14:05`.
    """
    try:
        ages = _range(text, duration)
    except OutOfRange:
        raise
    except Unreadable:
        return _calendar(text)
    if ages is not None:
        return ages.mirrored(lambda age: now - age)
    try:
        duration(text)
    except OutOfRange:
        raise
    except Unreadable:
        return _calendar(text)
    raise Unreadable(f"expected a comparison: <{text} for the last {text}, >{text} for older ones")


def _calendar(text: str) -> Range[datetime]:
    spans = _range(text, _span) or Range(_span(text), _span(text))
    # after a day means after its end, and up to a day means up to its end
    low = None if spans.low is None else spans.low[0 if spans.has_low else 1]
    high = None if spans.high is None else spans.high[1 if spans.has_high else 0]
    return Range(low, high, has_high=False)


def _span(text: str) -> tuple[datetime, datetime]:
    """The time of this text, from its beginning to its end."""
    written = text.removesuffix("Z")
    for form, lasts in FORMATS.items():
        try:
            start = datetime.strptime(written, form).replace(tzinfo=UTC)
        except ValueError:
            continue
        if start.year not in YEARS:
            raise OutOfRange(f"expected a year from {YEARS[0]} to {YEARS[-1]}")
        return start, start + lasts
    raise Unreadable(f"expected {MOMENT}")


def _range(text: str, read: Callable[[str], T]) -> Range[T] | None:
    """Read a comparison, or two values with `..` between them; None if it is neither."""
    if compared := OPERATOR.fullmatch(text):
        operator, bound = compared[1], read(compared[2])
        if operator.startswith(">"):
            return Range(low=bound, has_low=operator == ">=")
        return Range(high=bound, has_high=operator == "<=")
    low, dots, high = text.partition("..")
    if not dots:
        return None
    if not (low or high):
        raise Unreadable("expected a value before or after ..")
    found = Range(read(low) if low else None, read(high) if high else None)
    if found.low is not None and found.high is not None and found.high < found.low:  # type: ignore[operator]
        raise Unreadable(f"expected the smaller value first: {high}..{low}")
    return found
