"""Timers: which ticks are due, which are caught up, and when to look again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.automation.schedules import InvalidSchedule, Schedule, parse
from orchestrator.automation.schedules.parsing import EPOCH

NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
SECOND, HOUR = timedelta(seconds=1), timedelta(hours=1)


def at(clock: str) -> datetime:
    """A time of that day: `11:59` or `11:59:30`."""
    return datetime.fromisoformat(f"2026-03-01T{clock}+00:00")


def every(seconds: float, **parameters: Any) -> Schedule:
    created_at = parameters.pop("created_at", at("00:00"))
    return parse("core.interval", {"every_seconds": seconds} | parameters, created_at=created_at)


def once(when: str, **parameters: Any) -> Schedule:
    created_at = parameters.pop("created_at", at("00:00"))
    return parse("core.date", {"at": when} | parameters, created_at=created_at)


def due(schedule: Schedule, last_fired: datetime | None, now: datetime) -> list[tuple[str, int]]:
    found = schedule.due(last_fired, now)
    assert found.next_at is None or found.next_at > now or schedule.jitter_seconds
    return [(f"{tick.scheduled_at:%H:%M:%S}", tick.missed) for tick in found.ticks]


# --- intervals -----------------------------------------------------------------------------------


def test_interval_counts_from_its_anchor_and_never_drifts() -> None:
    schedule = every(0.1 + 60, start_at="2026-03-01T00:00:00Z")
    tick: datetime | None = schedule.start_at
    for number in range(1, 1_001):
        assert tick is not None
        tick = schedule.next_after(tick)
        assert tick == at("00:00") + number * timedelta(seconds=60.1)


def test_interval_begins_one_interval_after_its_trigger_was_created() -> None:
    schedule = every(60, created_at=at("11:59:30"))
    assert schedule.next_after(at("11:59:30")) == at("12:00:30")
    assert due(schedule, None, NOON) == []
    assert schedule.due(None, NOON).next_at == at("12:00:30")


def test_interval_goes_on_in_elapsed_time_where_a_clock_is_set() -> None:
    start = "2026-03-29T00:30:00"
    schedule = every(3_600, start_at=start, timezone="Europe/Berlin")
    begin = datetime(2026, 3, 28, 23, 30, tzinfo=UTC)
    assert schedule.next_after(begin - SECOND) == begin
    assert schedule.next_after(begin + 2 * HOUR) == begin + 3 * HOUR


SECONDS = "a number of seconds from 1 to 316,224,000, 10 years"


@pytest.mark.parametrize(
    ("unit", "delta", "seconds"),
    [("seconds", 30, 30), ("minutes", 2, 120), ("hours", 1, 3_600), ("days", 1, 86_400),
     ("weeks", 1, 604_800)],
)  # fmt: skip
def test_units_of_stackstorm(unit: str, delta: int, seconds: int) -> None:
    schedule = parse("core.interval", {"unit": unit, "delta": delta}, created_at=NOON)
    assert schedule.next_after(NOON) == NOON + timedelta(seconds=seconds)
    assert schedule.digest == every(seconds).digest


# --- what is caught up after an hour -------------------------------------------------------------

CAUGHT_UP = [
    # every ten minutes; fired last at 11:00, and somebody looks again at 12:00:30
    ({"catch_up": "last"}, [("12:00:00", 5)]),
    ({}, [("12:00:00", 5)]),
    ({"catch_up": "all"}, [(f"{hour}:00", 0) for hour in
                           ("11:10", "11:20", "11:30", "11:40", "11:50", "12:00")]),
    ({"catch_up": "all", "max_catch_up": 2}, [("11:50:00", 4), ("12:00:00", 0)]),
    ({"catch_up": "none"}, [("12:00:00", 5)]),
    ({"catch_up": "none", "grace_seconds": 29}, []),
    ({"catch_up": "none", "grace_seconds": 30}, [("12:00:00", 5)]),
    ({"catch_up": "none", "grace_seconds": 1_300}, [("11:40:00", 3), ("11:50:00", 0),
                                                    ("12:00:00", 0)]),
    ({"catch_up": "all", "end_at": "2026-03-01T11:20:00Z"}, [("11:10:00", 0)]),
    ({"catch_up": "all", "start_at": "2026-03-01T11:50:00Z"}, [("11:50:00", 0), ("12:00:00", 0)]),
    ({"catch_up": "last", "end_at": "2026-03-01T11:00:01Z"}, []),
]  # fmt: skip


@pytest.mark.parametrize("kind", ["interval", "cron"])
@pytest.mark.parametrize(("parameters", "expected"), CAUGHT_UP)
def test_what_is_caught_up_after_an_hour(
    kind: str, parameters: dict[str, Any], expected: list[tuple[str, int]]
) -> None:
    own = {"every_seconds": 600} if kind == "interval" else {"cron": "*/10 * * * *"}
    schedule = parse(f"core.{kind}", own | parameters, created_at=at("00:00"))
    assert due(schedule, at("11:00"), at("12:00:30")) == expected


def test_ticks_that_nobody_caught_up_are_counted_by_the_next_one() -> None:
    schedule = every(600, catch_up="none")
    assert due(schedule, at("11:00"), at("12:05")) == []
    assert schedule.due(at("11:00"), at("12:05")).next_at == at("12:10")
    assert due(schedule, at("11:00"), at("12:10")) == [("12:10:00", 6)]


def test_tick_in_time_has_missed_nothing() -> None:
    schedule = every(600)
    assert due(schedule, at("11:50"), at("12:00")) == [("12:00:00", 0)]
    assert due(schedule, at("12:00"), at("12:00")) == []
    assert schedule.due(at("12:00"), at("12:00:01")).next_at == at("12:10")


def test_ticks_from_before_the_trigger_was_created_are_not_caught_up() -> None:
    schedule = every(600, created_at=at("11:55"), start_at="2026-03-01T00:00:00Z", catch_up="all")
    assert due(schedule, None, NOON) == [("12:00:00", 0)]


def test_without_a_beginning_nothing_is_caught_up() -> None:
    schedule = parse("core.cron", {"cron": "* * * * *"})
    assert schedule.due(None, at("12:00:10")).ticks == ()
    assert schedule.due(None, at("12:00:10")).next_at == at("12:01")


def test_clock_that_is_set_back_fires_no_tick_twice() -> None:
    schedule = every(30, catch_up="all")
    assert due(schedule, at("11:59:30"), NOON) == [("12:00:00", 0)]
    for seconds in range(-90, 30, 10):  # the clock is set back by 90 s
        now = NOON + seconds * SECOND
        assert due(schedule, NOON, now) == []
        assert schedule.due(NOON, now).next_at == at("12:00:30")
    assert due(schedule, NOON, at("12:00:30")) == [("12:00:30", 0)]


def test_clock_that_jumps_forward_catches_up_as_after_downtime() -> None:
    schedule = every(30)
    assert due(schedule, NOON, at("13:00:05")) == [("13:00:00", 119)]


# --- dates ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "created", "now", "expected"),
    [
        ({}, "11:00", "11:59:59", []),
        ({}, "11:00", "12:00:00", [("12:00:00", 0)]),
        ({}, "11:00", "18:00:00", [("12:00:00", 0)]),  # a restart across the date
        ({"catch_up": "all"}, "11:00", "18:00:00", [("12:00:00", 0)]),
        ({"catch_up": "none"}, "11:00", "12:01:00", [("12:00:00", 0)]),
        ({"catch_up": "none"}, "11:00", "12:01:01", []),
        ({}, "13:00", "13:00:00", [("12:00:00", 0)]),  # past when it was created: at once
        ({"catch_up": "all"}, "13:00", "13:00:00", [("12:00:00", 0)]),
        ({"catch_up": "none"}, "12:00:10", "12:00:10", []),  # never, also within its grace
        ({"end_at": "2026-03-01T12:00:00Z"}, "11:00", "13:00:00", []),
    ],
)
def test_date_fires_once(
    parameters: dict[str, Any], created: str, now: str, expected: list[tuple[str, int]]
) -> None:
    schedule = once("2026-03-01T12:00:00Z", created_at=at(created), **parameters)
    assert due(schedule, None, at(now)) == expected
    if expected:
        assert schedule.due(NOON, at(now)) == ((), None)


@pytest.mark.parametrize(
    ("when", "timezone", "utc"),
    [
        ("2026-07-01T12:00:00", "UTC", "2026-07-01T12:00"),
        ("2026-07-01T12:00:00", "Europe/Berlin", "2026-07-01T10:00"),
        ("2026-07-01T12:00:00+05:30", "Europe/Berlin", "2026-07-01T06:30"),
        ("2026-03-29T02:30:00", "Europe/Berlin", "2026-03-29T01:00"),  # does not exist
        ("2026-10-25T02:30:00", "Europe/Berlin", "2026-10-25T00:30"),  # exists twice
        ("2011-12-30T08:00:00", "Pacific/Apia", "2011-12-30T10:00"),  # a day that was left out
        ("2026-03-08T02:00:00", "America/New_York", "2026-03-08T07:00"),
        ("2026-10-04T02:15:00", "Australia/Lord_Howe", "2026-10-03T15:30"),
        ("2026-04-24T00:59:59", "Africa/Cairo", "2026-04-23T22:00"),
    ],
)
def test_date_without_an_offset_is_of_the_zone(when: str, timezone: str, utc: str) -> None:
    expected = datetime.fromisoformat(utc).replace(tzinfo=UTC)
    assert once(when, timezone=timezone).next_after(EPOCH) == expected
    assert parse("core.date", {"date": when, "timezone": timezone}).next_after(EPOCH) == expected


# --- jitter --------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    seconds=st.integers(1, 40),
    jitter=st.integers(0, 120),
    steps=st.lists(st.integers(1, 30), min_size=1, max_size=30),
)
def test_every_tick_fires_once_in_order_and_not_before_its_jitter(
    seconds: int, jitter: int, steps: list[int]
) -> None:
    schedule = every(seconds, jitter_seconds=jitter, catch_up="all", max_catch_up=10_000)
    last, now, fired = at("00:00"), at("00:00"), []
    for step in steps:
        now += step * SECOND
        found = schedule.due(last, now)
        fired += [tick.scheduled_at for tick in found.ticks]
        assert all(schedule.fires_at(tick.scheduled_at) <= now for tick in found.ticks)
        assert all(tick.missed == 0 for tick in found.ticks)
        assert found.next_at is not None
        assert found.next_at > now
        last = fired[-1] if fired else last
    assert fired == [at("00:00") + n * seconds * SECOND for n in range(1, len(fired) + 1)]
    assert now - last <= (jitter + seconds) * SECOND


def test_jitter_is_the_same_for_everybody_and_differs_from_tick_to_tick() -> None:
    one, other = every(60, jitter_seconds=30), every(60, jitter_seconds=30)
    moments = [at("00:00") + n * timedelta(seconds=60) for n in range(200)]
    late = [(one.fires_at(moment) - moment).total_seconds() for moment in moments]
    assert late == [(other.fires_at(moment) - moment).total_seconds() for moment in moments]
    assert all(0 <= seconds <= 30 for seconds in late)
    assert len(set(late)) > 190
    assert max(late) - min(late) > 25


# --- identity ------------------------------------------------------------------------------------


def test_digest_tells_schedules_with_different_ticks_apart() -> None:
    schedules = [
        every(60),
        every(61),
        every(60, jitter_seconds=1),
        every(60, end_at="2027-01-01T00:00:00Z"),
        every(60, start_at="2026-01-01T00:00:00Z"),
        once("2026-03-01T12:00:00Z"),
        parse("core.cron", {"cron": "* * * * *"}),
        parse("core.cron", {"cron": "* * * * *", "timezone": "Europe/Berlin"}),
        parse("core.cron", {"cron": "0 0 13 * fri"}),
        parse("core.cron", {"day": 13, "day_of_week": "fri"}),
    ]
    assert len({schedule.digest for schedule in schedules}) == len(schedules)


def test_digest_is_the_same_for_the_same_ticks() -> None:
    assert every(60).digest == every(60.0, catch_up="all", created_at=NOON).digest
    assert parse("core.cron", {"cron": "@daily"}).digest == (
        parse("core.cron", {"cron": "00 0 * * 0-7"}).digest
    )


def test_key_of_a_tick_does_not_depend_on_the_zone_of_its_time() -> None:
    schedule = every(60)
    berlin = NOON.astimezone(tz=None)
    assert schedule.key(NOON) == schedule.key(berlin)
    assert schedule.key(NOON) == f"{schedule.digest[:32]}:2026-03-01T12:00:00+00:00"
    assert len(schedule.key(NOON)) <= 200


# --- parameters ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("type_ref", "given", "expected"),
    [
        ("core.crn", {}, ["unknown type of timer 'core.crn', did you mean 'core.cron'?"]),
        ("core.cron", [], ["expected a mapping of parameters, found an array of 0"]),
        ("core.cron", {}, ["cron: missing key, expected five fields such as '0 5 * * *'"]),
        ("core.cron", {"cron": "* * * * *", "hour": 5},
         ["cron: expected it, or named fields, found also hour"]),
        ("core.cron", {"crn": "* * * * *", "cron": 5},
         ["crn: unknown key, did you mean 'cron'?",
          "cron: expected five fields, or six with seconds first, found 5"]),
        ("core.interval", {}, [f"every_seconds: missing key, expected {SECONDS}"]),
        ("core.interval", {"every_seconds": 0.5},
         [f"every_seconds: expected {SECONDS}, found 0.5"]),
        ("core.interval", {"every_seconds": True},
         [f"every_seconds: expected {SECONDS}, found true"]),
        ("core.interval", {"every_seconds": 60, "unit": "hours", "delta": 1},
         ["every_seconds: expected it, or unit and delta, found both"]),
        ("core.interval", {"unit": "hours"},
         [f"every_seconds: missing key, expected {SECONDS}"]),
        ("core.interval", {"unit": "fortnights", "delta": 0},
         ["unit: expected one of weeks, days, hours, minutes, seconds, found 'fortnights'",
          "delta: expected a whole number from 1 to 316,224,000, found 0"]),
        ("core.interval", {"unit": "weeks", "delta": 10**8},
         ["delta: expected at most 10 years, found 100000000 weeks"]),
        ("core.date", {}, ["at: missing key, expected a date and time of ISO 8601"]),
        ("core.date", {"at": "soon"},
         ["at: expected a date and time of ISO 8601, found 'soon'"]),
        ("core.date", {"at": "0001-01-01T00:00:00+10:00"},
         ["at: expected a date and time of ISO 8601, found '0001-01-01T00:00:00+10:00'"]),
        ("core.date", {"at": "1969-12-31T00:00:00Z"},
         ["at: expected a year from 1970 to 9000, found 1969"]),
        ("core.date", {"at": "2026-01-01T00:00:00Z", "date": "2026-01-01T00:00:00Z"},
         ["date: expected at or date, found both"]),
        ("core.date", {"at": "2026-01-01T00:00:00Z", "timezone": "Europe/Berln"},
         ["timezone: unknown time zone 'Europe/Berln', did you mean 'Europe/Berlin'?"]),
        ("core.date", {"at": "2026-01-01T00:00:00Z", "timezone": "../../etc/passwd"},
         ["timezone: unknown time zone '../../etc/passwd', such as Europe/Berlin"]),
        ("core.cron",
         {"cron": "* * * * *", "start_at": "2026-01-02T00:00:00Z", "end_at": "2026-01-02T00:00:00Z",
          "catch_up": "lst", "max_catch_up": 0, "grace_seconds": -1, "jitter_seconds": 3_601},
         ["jitter_seconds: expected a whole number from 0 to 3,600, found 3601",
          "catch_up: expected one of last, all, none, found 'lst'",
          "max_catch_up: expected a whole number from 1 to 10,000, found 0",
          "grace_seconds: expected a whole number from 0 to 86,400, found -1",
          "end_at: expected a time after start_at, found one that is not"]),
    ],
)  # fmt: skip
def test_every_problem_of_the_parameters_is_named(
    type_ref: str, given: Any, expected: list[str]
) -> None:
    with pytest.raises(InvalidSchedule) as refused:
        parse(type_ref, given)
    assert [str(problem) for problem in refused.value.problems] == expected


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=3,
)


@settings(max_examples=200, deadline=None)
@given(
    type_ref=st.sampled_from(["core.interval", "core.cron", "core.date"]),
    given_=st.dictionaries(
        st.sampled_from(
            ["cron", "every_seconds", "at", "timezone", "start_at", "catch_up", "hour", "unit",
             "delta", "grace_seconds"]
        ),
        values | st.sampled_from(["*/5 * * * *", "2026-01-01", "UTC", "all", 5, "hours"]),
    ),
)  # fmt: skip
def test_whatever_the_parameters_a_schedule_or_a_reason(type_ref: str, given_: Any) -> None:
    try:
        schedule = parse(type_ref, given_, created_at=NOON)
    except InvalidSchedule as invalid:
        reasons = [problem.message for problem in invalid.problems]
    else:
        reasons = []
        schedule.due(None, NOON + HOUR)
    assert all(reasons)
