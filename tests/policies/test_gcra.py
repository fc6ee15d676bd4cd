"""The rate against a model that counts every start."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.policies.gcra import Rate

BEGIN = datetime(2026, 3, 1, 12, tzinfo=UTC)


class Line:
    """Starts as many as there are places, whenever it is asked."""

    def __init__(self, rate: Rate) -> None:
        self.rate = rate
        self.stored: datetime | None = None
        self.starts: list[datetime] = []

    def ask(self, now: datetime, number: int) -> int:
        started = min(number, self.rate.places(self.stored, now))
        self.stored = self.rate.after(self.stored, now, started)
        self.starts += [now] * started
        return started


def most_in(starts: list[datetime], window: timedelta) -> int:
    """The most starts in any window of this length, with both of its ends."""
    return max((sum(at <= each <= at + window for each in starts) for at in starts), default=0)


asked = st.lists(st.tuples(st.integers(0, 400_000), st.integers(1, 30)), min_size=1, max_size=60)


@given(limit=st.integers(1, 20), asked=asked)
def test_no_window_has_more_than_twice_the_limit(limit: int, asked: list[tuple[int, int]]) -> None:
    line, now = Line(Rate(limit, timedelta(seconds=1))), BEGIN
    for pause_us, number in asked:
        now += timedelta(microseconds=pause_us)
        line.ask(now, number)
    assert most_in(line.starts, timedelta(seconds=1)) <= 2 * limit


@given(limit=st.integers(1, 20), asked=asked)
def test_rate_admits_what_a_bucket_that_leaks_admits(
    limit: int, asked: list[tuple[int, int]]
) -> None:
    """The model: a bucket of `limit` places, of which one becomes free each interval."""
    rate = Rate(limit, timedelta(seconds=1))
    line, now = Line(rate), BEGIN
    level_us, interval_us = 0, rate.interval // timedelta(microseconds=1)
    for pause_us, number in asked:
        now += timedelta(microseconds=pause_us)
        level_us = max(0, level_us - pause_us)
        fits = 0
        while fits < number and level_us + interval_us <= limit * interval_us:
            level_us += interval_us
            fits += 1
        assert line.ask(now, number) == fits


def test_ten_a_second_are_at_most_610_a_minute_and_20_a_second() -> None:
    line = Line(Rate(10, timedelta(seconds=1)))
    for tick in range(60 * 100 + 1):
        line.ask(BEGIN + timedelta(milliseconds=10 * tick), 100)
    assert len(line.starts) == 610
    assert most_in(line.starts[:200], timedelta(seconds=1)) == 20


@given(limit=st.integers(1, 50), ahead=st.integers(0, 200), taken=st.integers(0, 50))
def test_next_time_is_exact(limit: int, ahead: int, taken: int) -> None:
    rate = Rate(limit, timedelta(seconds=1))
    stored = rate.after(None, BEGIN, min(taken, limit))
    at = rate.at(stored, BEGIN, ahead)
    if at <= BEGIN:
        assert rate.places(stored, BEGIN) > ahead
        return
    before = at - timedelta(microseconds=1)
    after_those_ahead = rate.after(stored, BEGIN, ahead)
    assert rate.places(after_those_ahead, at) >= 1
    if ahead == 0:
        assert rate.places(stored, before) == 0


def test_interval_is_never_too_short() -> None:
    assert Rate(3, timedelta(seconds=1)).interval == timedelta(microseconds=333_334)


def test_time_from_before_the_clock_was_set_back_keeps_nobody_for_long() -> None:
    rate = Rate(10, timedelta(seconds=1))
    stored = rate.after(None, BEGIN + timedelta(hours=5), 3)
    assert rate.places(stored, BEGIN) == 0
    assert rate.places(rate.after(stored, BEGIN, 0), BEGIN + timedelta(seconds=1)) == 10


@pytest.mark.parametrize("ahead", [10**6, 10**18])
def test_wait_behind_a_long_line_is_within_the_calendar(ahead: int) -> None:
    rate = Rate(1, timedelta(days=1))
    assert rate.at(None, BEGIN, ahead) == BEGIN + timedelta(days=366)
