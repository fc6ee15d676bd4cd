"""Hours, days and months of a time zone, as moments."""

from __future__ import annotations

import enum
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
YEAR = 366 * DAY
"""Nothing waits for longer, and a calendar has an end."""


class Period(enum.StrEnum):
    """The unit of time in which a quota counts."""

    HOUR = "hour"
    DAY = "day"
    MONTH = "month"


A_YEAR = {Period.HOUR: YEAR // HOUR, Period.DAY: YEAR // DAY, Period.MONTH: 12}
"""The number of each in a year."""


def is_zone(name: str) -> bool:
    """Return True if this is the name of a time zone, such as Europe/Berlin."""
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return bool(name)


def start(moment: datetime, period: str, zone: ZoneInfo) -> datetime:
    """The beginning of the period in which this moment is.

    Days and months begin at midnight of the zone, however long they are. An hour that the zone's
    clock shows twice is two.
    """
    local = moment.astimezone(zone)
    if period == Period.HOUR:
        return moment - timedelta(
            minutes=local.minute, seconds=local.second, microseconds=local.microsecond
        )
    first = local.date().replace(day=1) if period == Period.MONTH else local.date()
    begun = _midnight(first, zone)
    # a clock that was set over midnight: until then it is still the period before
    return begun if begun <= moment else _midnight(_first_before(first, period), zone)


def following(begun: datetime, period: str, zone: ZoneInfo, *, number: int = 1) -> datetime:
    """The beginning of the period so many after the one that began then."""
    if period == Period.HOUR:
        return begun + HOUR * number
    # by noon, so that a midnight that was set forward cannot lead into the day before
    first = (begun + DAY / 2).astimezone(zone).date()
    if period == Period.DAY:
        return _midnight(first + DAY * number, zone)
    months = first.year * 12 + first.month - 1 + number
    return _midnight(date(months // 12, months % 12 + 1, 1), zone)


def _first_before(first: date, period: str) -> date:
    before = first - DAY
    return before.replace(day=1) if period == Period.MONTH else before


def _midnight(day: date, zone: ZoneInfo) -> datetime:
    return datetime.combine(day, time(), zone).astimezone(UTC)
