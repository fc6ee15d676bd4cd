"""Hours, days and months of zones whose clocks are set."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.policies import periods
from orchestrator.policies.periods import Period

BERLIN = ZoneInfo("Europe/Berlin")
ZONES = ["UTC", "Europe/Berlin", "America/New_York", "America/Havana", "Asia/Kolkata",
         "Africa/Cairo", "Australia/Lord_Howe", "Pacific/Apia"]  # fmt: skip


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


@given(
    seconds=st.integers(1_262_304_000, 1_893_456_000),
    zone=st.sampled_from(ZONES),
    period=st.sampled_from(list(Period)),
)
def test_every_moment_is_in_its_period(seconds: int, zone: str, period: Period) -> None:
    moment, zone_info = datetime.fromtimestamp(seconds, UTC), ZoneInfo(zone)
    begun = periods.start(moment, period, zone_info)
    assert begun <= moment
    if period != Period.HOUR:
        assert periods.start(begun, period, zone_info) == begun
        assert moment < periods.following(begun, period, zone_info)
    assert begun < periods.following(begun, period, zone_info)


@pytest.mark.parametrize(
    ("day", "hours"), [("2026-03-29", 23), ("2026-10-25", 25), ("2026-06-01", 24)]
)
def test_day_is_as_long_as_its_zone_makes_it(day: str, hours: int) -> None:
    noon = at(f"{day}T12:00+00:00")
    begun = periods.start(noon, Period.DAY, BERLIN)
    assert begun.astimezone(BERLIN).hour == 0
    assert periods.following(begun, Period.DAY, BERLIN) - begun == timedelta(hours=hours)


def test_hour_that_is_shown_twice_is_two() -> None:
    first = periods.start(at("2026-10-25T02:30+02:00"), Period.HOUR, BERLIN)
    second = periods.start(at("2026-10-25T02:30+01:00"), Period.HOUR, BERLIN)
    assert second - first == timedelta(hours=1)


def test_months_follow_each_other_over_the_year() -> None:
    begun = periods.start(at("2026-12-31T23:30+00:00"), Period.MONTH, BERLIN)
    assert begun == at("2027-01-01T00:00+01:00"), "it is January in Berlin"
    assert periods.following(begun, Period.MONTH, BERLIN, number=14) == at("2028-03-01T00:00+01:00")


@pytest.mark.parametrize(("name", "known"), [("Europe/Berlin", True), ("Mars/Base", False),
                                             ("../etc/passwd", False), ("", False)])  # fmt: skip
def test_zones_have_names(name: str, known: bool) -> None:
    assert periods.is_zone(name) is known
