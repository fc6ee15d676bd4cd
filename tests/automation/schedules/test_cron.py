"""Cron: its fields, and its ticks where clocks are set."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from functools import cache
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.automation.schedules import InvalidSchedule, Schedule, parse

MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)


def cron(text: str, timezone: str = "UTC", **parameters: Any) -> Schedule:
    return parse("core.cron", {"cron": text, "timezone": timezone} | parameters)


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def ticks(schedule: Schedule, begin: datetime, end: datetime) -> Iterator[datetime]:
    moment = begin - timedelta(microseconds=1)
    while (tick := schedule.next_after(moment)) is not None and tick < end:
        yield tick
        moment = tick


def local(schedule: Schedule, begin: str, end: str) -> list[str]:
    """The ticks between two times in UTC, as the zone's clock shows them."""
    zone = ZoneInfo(schedule.timezone)
    found = ticks(schedule, utc(begin), utc(end))
    return [tick.astimezone(zone).strftime("%m-%d %H:%M%z") for tick in found]


# --- fields --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "after", "expected"),
    [
        ("* * * * *", "2026-01-01 00:00:00", ["01-01 00:01", "01-01 00:02"]),
        ("0 5 * * *", "2026-01-01 05:00:00", ["01-02 05:00", "01-03 05:00"]),
        ("*/20 8-9 * * *", "2026-01-01 09:30:00", ["01-01 09:40", "01-02 08:00"]),
        ("5/20 0 * * *", "2026-01-01 00:00:00", ["01-01 00:05", "01-01 00:25"]),
        ("0 0 1,15 * *", "2026-01-02 00:00:00", ["01-15 00:00", "02-01 00:00"]),
        ("0 0 * * 0", "2026-01-01 00:00:00", ["01-04 00:00", "01-11 00:00"]),
        ("0 0 * * 7", "2026-01-01 00:00:00", ["01-04 00:00", "01-11 00:00"]),
        ("0 0 * * Fri-Sun", "2026-01-01 00:00:00", ["01-02 00:00", "01-03 00:00", "01-04 00:00"]),
        ("0 0 * JUN,dec *", "2026-06-29 12:00:00", ["06-30 00:00", "12-01 00:00"]),
        # a day of the month or of the week, as soon as neither is `*`
        ("0 0 13 * FRI", "2026-02-07 00:00:00", ["02-13 00:00", "02-20 00:00"]),
        ("0 0 13 * fri", "2026-03-28 00:00:00", ["04-03 00:00", "04-10 00:00", "04-13 00:00"]),
        ("0 0 */13 * fri", "2026-02-07 00:00:00", ["02-27 00:00", "03-27 00:00"]),
        ("0 0 31 * *", "2026-01-31 00:00:00", ["03-31 00:00", "05-31 00:00"]),
        ("@daily", "2026-01-01 00:00:00", ["01-02 00:00"]),
        ("@Hourly", "2026-01-01 00:00:00", ["01-01 01:00"]),
        ("@weekly", "2026-01-01 00:00:00", ["01-04 00:00"]),
        ("@monthly", "2026-01-01 00:00:00", ["02-01 00:00"]),
        ("@yearly", "2026-01-02 00:00:00", ["01-01 00:00"]),
    ],
)
def test_fields_say_when(text: str, after: str, expected: list[str]) -> None:
    schedule, moment = cron(text), utc(after)
    for wanted in expected:
        tick = schedule.next_after(moment)
        assert tick is not None
        assert tick.strftime("%m-%d %H:%M") == wanted
        moment = tick


def test_sixth_field_is_in_front_and_counts_seconds() -> None:
    schedule = cron("*/25 59 23 31 12 *")
    found = list(ticks(schedule, utc("2026-12-31 23:59:10"), utc("2028-01-01")))
    assert [str(tick)[:19] for tick in found] == [
        "2026-12-31 23:59:25",
        "2026-12-31 23:59:50",
        "2027-12-31 23:59:00",
        "2027-12-31 23:59:25",
        "2027-12-31 23:59:50",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected five fields, or six with seconds first, found ''"),
        ("* * * *", "expected five fields, or six with seconds first, found 4"),
        ("* * * * * * *", "expected five fields, or six with seconds first, found 7"),
        ("60 * * * *", "field 1, minute: expected a number from 0 to 59, found '60'"),
        ("0 24 * * *", "field 2, hour: expected a number from 0 to 23, found '24'"),
        ("0 0 0 * *", "field 3, day: expected a number from 1 to 31, found '0'"),
        ("0 0 * foo *", "field 4, month: expected a number from 1 to 12 or jan to dec, "
                        "found 'foo'"),
        ("0 0 * * 8", "field 5, day_of_week: expected a number from 0 to 7 or sun to sat, "
                      "found '8'"),
        ("* * * * * mon#2", "field 6, day_of_week: expected a number from 0 to 7 or sun to sat, "
                            "found 'mon#2'"),
        ("*/0 * * * *", "field 1, minute: expected a step of 1 or more, found '0'"),
        ("5-1 * * * *", "field 1, minute: expected a range from the smaller to the larger, "
                        "found '5-1'"),
        ("1,,2 * * * *", "field 1, minute: expected a number from 0 to 59, found ''"),
        ("-1 * * * *", "field 1, minute: expected a number from 0 to 59, found ''"),
        ("0 0 30 2 *", "expected dates that exist, found none that fits"),
        ("0 0 31 4,6,9,11 *", "expected dates that exist, found none that fits"),
        ("@reboot", "expected five fields, or six with seconds first, found 1"),
        ("x" * 501, "expected at most 500 characters, found 501"),
    ],
)  # fmt: skip
def test_fields_that_are_none_are_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidSchedule) as refused:
        cron(text)
    assert str(refused.value) == f"cron: {message}"


# --- StackStorm's named fields -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("named", "text"),
    [
        ({"minute": 30, "hour": 5}, "30 5 * * *"),
        ({"hour": "5"}, "0 5 * * *"),  # what is less significant is at its smallest
        ({"second": "*/10"}, "*/10 * * * * *"),
        ({"minute": "*/5", "second": 0}, "*/5 * * * *"),
        ({"day_of_week": 0}, "0 0 * * mon"),  # 0 is Monday there
        ({"day_of_week": "mon-fri", "hour": 8}, "0 8 * * 1-5"),
        ({"day_of_week": "6", "hour": "8"}, "0 8 * * sun"),
        ({"day": 1}, "0 0 1 * *"),
        ({"month": "2-3"}, "0 0 1 2-3 *"),
        ({"day_of_week": "*", "hour": 1, "minute": 0, "second": 0}, "0 1 * * *"),
    ],
)
def test_named_fields_are_translated(named: dict[str, Any], text: str) -> None:
    translated = parse("core.cron", named)
    begin, end = utc("2026-01-01"), utc("2026-01-01") + (DAY if "second" in named else 100 * DAY)
    assert list(ticks(translated, begin, end)) == list(ticks(cron(text), begin, end))


def test_named_fields_must_all_fit() -> None:
    friday_13 = parse("core.cron", {"day": 13, "day_of_week": "fri"})
    assert local(friday_13, "2026-01-01", "2027-01-01") == [
        "02-13 00:00+0000",
        "03-13 00:00+0000",
        "11-13 00:00+0000",
    ]


def test_named_year_and_week() -> None:
    week = parse("core.cron", {"year": "2026-2027", "week": 1, "day_of_week": "thu"})
    found = [str(tick.date()) for tick in ticks(week, utc("2020-01-01"), utc("2040-01-01"))]
    assert found == ["2026-01-01", "2027-01-07"]
    assert week.next_after(utc("2027-01-07")) is None
    far = parse("core.cron", {"year": "2026,2099", "month": 1, "day": 1})
    assert [tick.year for tick in ticks(far, utc("2020-01-01"), utc("9000-01-01"))] == [2026, 2099]


def test_problems_of_named_fields_are_all_named() -> None:
    with pytest.raises(InvalidSchedule) as refused:
        parse("core.cron", {"day": "last", "day_of_week": 7, "hour": [1], "minute": 61})
    assert [str(problem) for problem in refused.value.problems] == [
        "hour: expected a field of cron, found an array of 1"
    ]
    with pytest.raises(InvalidSchedule) as refused:
        parse("core.cron", {"day": "last", "day_of_week": 7, "minute": 61})
    assert {str(problem) for problem in refused.value.problems} == {
        "day: expected a number from 1 to 31, found 'last'",
        "day_of_week: expected a number from 0 to 6 or mon to sun, found '7'",
        "minute: expected a number from 0 to 59, found '61'",
    }


# --- clocks that are set -------------------------------------------------------------------------

GAPS = [
    ("Europe/Berlin", "30 2 * * *", "2026-03-28", "2026-03-31",
     ["03-28 02:30+0100", "03-29 03:00+0200", "03-30 02:30+0200"]),
    ("America/New_York", "*/15 2 * * *", "2026-03-08", "2026-03-09",
     ["03-08 03:00-0400"]),  # four times that do not exist are one tick
    ("America/New_York", "0 2,3 * * *", "2026-03-08", "2026-03-09", ["03-08 03:00-0400"]),
    ("Australia/Lord_Howe", "15 2 * * *", "2026-10-02", "2026-10-05",
     ["10-03 02:15+1030", "10-04 02:30+1100", "10-05 02:15+1100"]),
    ("Africa/Cairo", "0 0 * * fri", "2026-04-23", "2026-05-02",
     ["04-24 01:00+0300", "05-01 00:00+0300"]),
    ("America/Santiago", "30 0 * * *", "2026-09-05", "2026-09-08",
     ["09-05 00:30-0400", "09-06 01:00-0300", "09-07 00:30-0300"]),
    ("Pacific/Apia", "0 12 * * *", "2011-12-28", "2011-12-31",  # a day that was left out
     ["12-28 12:00-1000", "12-29 12:00-1000", "12-31 00:00+1400", "12-31 12:00+1400"]),
    # hours that are any, or a step, just go on
    ("Europe/Berlin", "30 * * * *", "2026-03-29", "2026-03-29 04:00",
     ["03-29 01:30+0100", "03-29 03:30+0200", "03-29 04:30+0200", "03-29 05:30+0200"]),
    ("Europe/Berlin", "0 */2 * * *", "2026-03-28 22:00", "2026-03-29 06:00",
     ["03-29 00:00+0100", "03-29 04:00+0200", "03-29 06:00+0200"]),
]  # fmt: skip

OVERLAPS = [
    ("Europe/Berlin", "30 2 * * *", "2026-10-24", "2026-10-27",
     ["10-24 02:30+0200", "10-25 02:30+0200", "10-26 02:30+0100"]),
    ("America/New_York", "*/30 1 * * *", "2026-11-01", "2026-11-02",
     ["11-01 01:00-0400", "11-01 01:30-0400"]),
    ("America/New_York", "0 1,2 * * *", "2026-11-01", "2026-11-02",
     ["11-01 01:00-0400", "11-01 02:00-0500"]),
    ("Australia/Lord_Howe", "45 1 * * *", "2026-04-03", "2026-04-06",
     ["04-04 01:45+1100", "04-05 01:45+1100", "04-06 01:45+1030"]),
    ("Africa/Cairo", "30 23 * * *", "2026-10-29", "2026-10-31",
     ["10-29 23:30+0300", "10-30 23:30+0200"]),
    ("America/Santiago", "0 23 * * *", "2026-04-04 12:00", "2026-04-07",
     ["04-04 23:00-0300", "04-05 23:00-0400"]),
    ("Europe/Berlin", "30 * * * *", "2026-10-24 23:00", "2026-10-25 03:00",
     ["10-25 01:30+0200", "10-25 02:30+0200", "10-25 02:30+0100", "10-25 03:30+0100"]),
    ("Europe/Berlin", "0 0-23/2 * * *", "2026-10-24 23:00", "2026-10-25 03:30",
     ["10-25 02:00+0200", "10-25 02:00+0100", "10-25 04:00+0100"]),
]  # fmt: skip


@pytest.mark.parametrize(("zone", "text", "begin", "end", "expected"), GAPS)
def test_time_that_does_not_exist_is_the_first_after_the_gap(
    zone: str, text: str, begin: str, end: str, expected: list[str]
) -> None:
    assert local(cron(text, zone), begin, end) == expected


@pytest.mark.parametrize(("zone", "text", "begin", "end", "expected"), OVERLAPS)
def test_time_that_exists_twice_is_the_first_one(
    zone: str, text: str, begin: str, end: str, expected: list[str]
) -> None:
    assert local(cron(text, zone), begin, end) == expected


def test_leap_day() -> None:
    found = local(cron("0 12 29 2 *", "Asia/Tokyo"), "2026-01-01", "2037-01-01")
    assert found == ["02-29 12:00+0900"] * 3
    tick = cron("0 0 29 2 *").next_after(utc("2096-03-01"))
    assert tick == utc("2104-02-29")  # 2100 has none
    tick = cron("0 0 29 2 *").next_after(utc("1999-03-01"))
    assert tick == utc("2000-02-29")


@cache
def days_with_changes(zone: str, year: int) -> list[date]:
    info = ZoneInfo(zone)
    days = [datetime(year, 1, 1, tzinfo=UTC) + n * DAY for n in range(366)]
    offsets = [day.astimezone(info).utcoffset() for day in days]
    return [day.date() for day, a, b in zip(days, offsets, offsets[1:], strict=False) if a != b]


def reference(text: str, zone: str, begin: datetime, end: datetime) -> list[datetime]:
    """The ticks in `[begin, end)`, found by asking every minute."""
    minutes, hours = text.split()[:2]
    wanted = {int(minute) for minute in minutes.split(",")}
    info = ZoneInfo(zone)
    if hours in ("*", "*/3"):
        fits = range(0, 24, 3 if "/" in hours else 1)
        every = [begin + n * MINUTE for n in range((end - begin) // MINUTE)]
        shown = [(at, at.astimezone(info)) for at in every]
        return [at for at, clock in shown if clock.minute in wanted and clock.hour in fits]
    found = set()
    first = begin.replace(tzinfo=None) - 2 * DAY
    for number in range((end - begin).days + 5):
        for hour in map(int, hours.split(",")):
            for minute in wanted:
                at = first.replace(hour=hour, minute=minute) + number * DAY
                while (moment := at.replace(tzinfo=info).astimezone(UTC)).astimezone(info).replace(
                    tzinfo=None
                ) != at:
                    at += MINUTE
                found.add(moment)
    return sorted(moment for moment in found if begin <= moment < end)


@settings(max_examples=60, deadline=None)
@given(
    zone=st.sampled_from(sorted(name for name in available_timezones() if "/" in name)),
    year=st.integers(1995, 2036),
    minutes=st.lists(st.integers(0, 59), min_size=1, max_size=3, unique=True),
    hours=st.just("*")
    | st.just("*/3")
    | st.lists(st.integers(0, 23), min_size=1, max_size=4, unique=True).map(
        lambda numbers: ",".join(map(str, numbers))
    ),
)
def test_ticks_are_those_that_asking_every_minute_finds(
    zone: str, year: int, minutes: list[int], hours: str
) -> None:
    text = f"{','.join(map(str, minutes))} {hours} * * *"
    schedule = cron(text, zone)
    for day in (days_with_changes(zone, year) or [date(year, 6, 1)])[:2]:
        begin = datetime(day.year, day.month, day.day, tzinfo=UTC) - DAY
        end = begin + 3 * DAY
        expected = reference(text, zone, begin, end)
        assert list(ticks(schedule, begin, end)) == expected
        timing = schedule.timing
        before, last = begin - timedelta(seconds=1), end - timedelta(seconds=1)
        assert timing.count(before, last) == len(expected)
        assert timing.newest(before, last, 5) == expected[-5:]


# --- cost ----------------------------------------------------------------------------------------


def test_years_of_missed_seconds_are_counted_at_once() -> None:
    schedule = cron("* * * * * *", "Europe/Berlin")
    began = time.process_time()
    (tick,), _ = schedule.due(utc("2020-01-01"), utc("2026-01-01"))
    assert tick.missed == (utc("2026-01-01") - utc("2020-01-01")).total_seconds() - 1
    assert time.process_time() - began < 1
