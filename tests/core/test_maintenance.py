"""Ticks: each maintenance function runs once an interval, whoever asks, and when nobody asks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import OperationalError
from django_celery_beat.models import CrontabSchedule, IntervalSchedule, PeriodicTask, PeriodicTasks

from orchestrator.core import dead_letters, fleet, maintenance, schedule
from orchestrator.core.admin.schedule import IntervalScheduleForm
from orchestrator.core.database import BRIEF_MS
from orchestrator.core.models import Tick, Worker
from orchestrator.core.models.execution_sets import DEADLINE_GRACE
from orchestrator.core.states import ExecutionStatus
from settings import muster
from settings.celery import app
from tasks.beat import Scheduler
from tasks.watchdog import MISSED_TICKS, SHORTEST_PAUSE
from tests.factories import NOW, make_execution
from tests.races import at_once
from tests.rows import reread

pytestmark = pytest.mark.usefixtures("database", "sent")

NAME = "muster.check_timeouts"
INTERVAL = timedelta(seconds=5)


@pytest.fixture
def runs(instead: Callable[[str, Any], None]) -> list[datetime]:
    """When the function ran, in place of what it does."""
    moments: list[datetime] = []

    def function(*, now: datetime) -> str:
        moments.append(now)
        return "done"

    instead(NAME, function)
    return moments


def test_first_tick_runs(runs: list[datetime]) -> None:
    assert maintenance.run(NAME, now=NOW) == "done"
    assert Tick.objects.get().ran_at == NOW


def test_second_beat_within_half_an_interval_runs_nothing(runs: list[datetime]) -> None:
    maintenance.run(NAME, now=NOW)
    assert maintenance.run(NAME, now=NOW + INTERVAL * 0.49) is None
    assert maintenance.run(NAME, now=NOW + INTERVAL * 0.5) == "done"
    assert runs == [NOW, NOW + INTERVAL * 0.5]


def test_watchdog_runs_only_what_was_missed_for_two_whole_intervals(runs: list[datetime]) -> None:
    maintenance.run(NAME, now=NOW)
    assert maintenance.run(NAME, now=NOW + INTERVAL * 1.99, missed=2) is None
    assert maintenance.run(NAME, now=NOW + INTERVAL * 2, missed=2) == "done"
    assert maintenance.run(NAME, now=NOW + INTERVAL * 3, missed=2) is None


def test_watchdog_leaves_beat_a_whole_interval_for_what_runs_seldom() -> None:
    name, seldom = "muster.detect_stale_tasks", timedelta(seconds=300)
    assert maintenance.run(name, now=NOW, missed=2) is None
    assert maintenance.run(name, now=NOW + seldom * 1.99, missed=2) is None
    assert maintenance.run(name, now=NOW + seldom * 2, missed=2) is not None


def test_beat_that_comes_back_is_not_held_up_by_the_watchdog(runs: list[datetime]) -> None:
    maintenance.run(NAME, now=NOW)
    maintenance.run(NAME, now=NOW + INTERVAL * 2, missed=2)
    assert maintenance.run(NAME, now=NOW + INTERVAL * 2.5) == "done"


def test_each_function_has_a_tick_of_its_own(runs: list[datetime]) -> None:
    maintenance.run(NAME, now=NOW)
    assert maintenance.run("muster.check_heartbeats", now=NOW) is not None


def test_what_a_watchdog_looks_for_is_what_it_would_run(runs: list[datetime]) -> None:
    """One query for all functions instead of a try of each: the two must not differ."""
    plans = maintenance.plans([NAME])
    maintenance.run(NAME, now=NOW)
    for after, due_in in (
        (INTERVAL, 0.5 * INTERVAL.total_seconds()),
        (INTERVAL * 1.5, 0),
        (-timedelta(seconds=1), 1.5 * INTERVAL.total_seconds() + 1),
        (-timedelta(seconds=1.1), 0),
    ):
        Tick.objects.update(ran_at=NOW)
        now = NOW + after
        assert maintenance.missed_in(plans, now=now, intervals=1.5) == {NAME: due_in}
        assert (maintenance.run(NAME, now=now, missed=1.5) == "done") is (due_in == 0)
    Tick.objects.all().delete()
    assert maintenance.missed_in(plans, now=NOW, intervals=1.5) == {NAME: 0}


def test_racing_ticks_run_once(runs: list[datetime]) -> None:
    Tick.objects.create(name=NAME, ran_at=NOW - INTERVAL)
    outcomes = at_once(*[lambda: maintenance.run(NAME, now=NOW)] * 6)
    assert not [each for each in outcomes if isinstance(each, Exception)]
    assert runs == [NOW]


def test_function_that_fails_is_tried_again_at_the_next_tick(
    instead: Callable[[str, Any], None],
) -> None:
    def fail(**_: Any) -> None:
        raise OSError("broker away")

    instead(NAME, fail)
    for now in (NOW, NOW + INTERVAL):
        with pytest.raises(OSError, match="broker away"):
            maintenance.run(NAME, now=now)


def test_timeout_check_sweeps_and_heartbeat_check_settles() -> None:
    make_execution(ExecutionStatus.SCHEDULED, start_by=NOW)
    make_execution(ExecutionStatus.RUNNING)
    assert maintenance.run(NAME, now=NOW)["not_started"] == 1
    later = NOW + timedelta(seconds=31)
    told = maintenance.run("muster.check_heartbeats", now=later)
    assert told == {"lost": ["w1"], "settled": 1, "released": 0}


def test_promise_leaves_time_for_an_executor_that_vanishes_in_its_sweep() -> None:
    """What runs has its grace, a tick begins an interval later, and whoever takes it ends nothing:
    a watchdog is next, and the rows are free by then. See docs/adr/0005."""
    interval_seconds = INTERVAL.total_seconds()
    until_missed = interval_seconds * (MISSED_TICKS + SHORTEST_PAUSE)
    seconds = DEADLINE_GRACE.total_seconds() + interval_seconds + until_missed
    assert seconds == pytest.approx(18.1, abs=0.1)
    assert BRIEF_MS / 1000 < interval_seconds < until_missed


def test_nothing_that_may_take_long_is_between_two_sweeps() -> None:
    urgent = {name for name, each in maintenance.functions().items() if not each.is_slow}
    assert urgent == {"muster.check_timeouts", "muster.check_heartbeats"}


def test_beat_schedules_every_function_and_nothing_else_of_ours() -> None:
    scheduled = PeriodicTask.objects.filter(enabled=True, task__startswith="muster.")
    assert set(scheduled.values_list("task", flat=True)) == set(maintenance.functions())


# --- what an operator has changed in beat's schedule ----------------------------------------------


@pytest.fixture
def planned(database: str, runs: list[datetime]) -> Iterator[list[datetime]]:
    """When the function ran. The rows are put back afterwards, as the next test has them too."""
    rows = list(PeriodicTask.objects.all())
    yield runs
    PeriodicTask.objects.all().delete()
    PeriodicTask.objects.bulk_create(rows)


def change(**values: Any) -> None:
    PeriodicTask.objects.filter(name=NAME).update(**values)


def every(number: int, period: str) -> IntervalSchedule:
    return IntervalSchedule.objects.get_or_create(every=number, period=period)[0]


def test_function_that_an_operator_paused_is_run_by_nobody(planned: list[datetime]) -> None:
    change(enabled=False)
    assert maintenance.run(NAME, now=NOW) is None
    assert maintenance.run(NAME, now=NOW + INTERVAL * 100, missed=1.5) is None
    change(enabled=True)
    assert maintenance.run(NAME, now=NOW + INTERVAL * 101, missed=1.5) == "done"


def test_function_that_an_operator_slowed_is_slowed_for_the_watchdog(
    planned: list[datetime],
) -> None:
    change(interval=every(1, "minutes"))
    maintenance.run(NAME, now=NOW)
    assert maintenance.run(NAME, now=NOW + timedelta(seconds=89), missed=1.5) is None
    assert maintenance.run(NAME, now=NOW + timedelta(seconds=90), missed=1.5) == "done"


@pytest.mark.parametrize("days", [3_000_000, 2_000_000_000])
def test_interval_beyond_any_calendar_stops_no_other_function(
    planned: list[datetime], days: int
) -> None:
    Tick.objects.create(name=NAME, ran_at=NOW)
    change(interval=every(days, "days"))
    plans = maintenance.plans()
    assert maintenance.missed_in(plans, now=NOW, intervals=1.5)["muster.check_heartbeats"] == 0
    assert plans[NAME].seconds == schedule.LONGEST.total_seconds()
    row = PeriodicTask.objects.get(name=NAME)
    assert schedule.next_times(row, 1, last=NOW, now=NOW) == [NOW + schedule.LONGEST]


@pytest.mark.parametrize("days", [3_000_000, 2_000_000_000])
def test_interval_beyond_any_calendar_keeps_beat_from_no_other_row(
    planned: list[datetime], days: int
) -> None:
    change(interval=every(days, "days"))
    scheduler = Scheduler(app=app, lazy=True)
    scheduler.populate_heap()
    assert "muster.check_heartbeats" in {event.entry.name for event in scheduler._heap}


@pytest.mark.parametrize(("number", "period"), [(367, "days"), (366 * 86_400 + 1, "seconds")])
def test_interval_of_more_than_a_year_is_refused(number: int, period: str) -> None:
    assert IntervalScheduleForm({"every": number - 1, "period": period}).is_valid()
    form = IntervalScheduleForm({"every": number, "period": period})
    assert form.errors == {"every": ["An interval has at most 366 days."]}


def test_function_that_an_operator_hastened_runs_as_often(planned: list[datetime]) -> None:
    change(interval=every(1, "seconds"))
    maintenance.run(NAME, now=NOW)
    assert maintenance.run(NAME, now=NOW + timedelta(seconds=1)) == "done"


def test_row_that_nobody_changed_follows_the_setting(
    planned: list[datetime], settings: Any
) -> None:
    settings.MUSTER = replace(settings.MUSTER, maintenance_interval_seconds=60)
    maintenance.run(NAME, now=NOW)
    assert maintenance.run(NAME, now=NOW + timedelta(seconds=29)) is None
    PeriodicTask.objects.filter(name=NAME).delete()
    assert maintenance.run(NAME, now=NOW + timedelta(seconds=29)) is None
    assert maintenance.run(NAME, now=NOW + timedelta(seconds=30)) == "done"


@pytest.fixture
def a_minute(settings: Any) -> None:
    """The setting was changed since the rows were made."""
    settings.MUSTER = replace(settings.MUSTER, maintenance_interval_seconds=60)


def test_changed_setting_takes_effect_when_beat_starts(
    planned: list[datetime], a_minute: None
) -> None:
    scheduler = Scheduler(app=app, lazy=True)
    assert scheduler.schedule[NAME].schedule.run_every == INTERVAL
    scheduler.setup_schedule()
    minute = timedelta(minutes=1)
    assert scheduler.schedule[NAME].schedule.run_every == minute
    assert maintenance.plans([NAME])[NAME].seconds == minute.total_seconds()


def test_changed_setting_is_taken_over_after_migrations_and_beat_hears_of_it(
    planned: list[datetime], a_minute: None
) -> None:
    change(kwargs='{"installed_seconds": 5, "mine": 1}', enabled=False)
    changed = PeriodicTasks.last_change()
    schedule.install(using="default")
    row = PeriodicTask.objects.get(name=NAME)
    assert (str(row.interval), row.enabled) == ("every 60 seconds", False)
    assert json.loads(row.kwargs) == {"installed_seconds": 60, "mine": 1}
    assert PeriodicTasks.last_change() != changed
    changed = PeriodicTasks.last_change()
    schedule.install(using="default")
    assert PeriodicTasks.last_change() == changed


@pytest.mark.parametrize("number", [2, 60])
def test_interval_that_an_operator_has_given_a_row_outlasts_a_changed_setting(
    planned: list[datetime], settings: Any, number: int
) -> None:
    change(interval=every(number, "seconds"))
    for seconds in (60, 30):
        settings.MUSTER = replace(settings.MUSTER, maintenance_interval_seconds=seconds)
        schedule.install(using="default")
        assert PeriodicTask.objects.get(name=NAME).interval == every(number, "seconds")


def test_crontab_and_odd_arguments_of_an_operator_outlast_a_changed_setting(
    planned: list[datetime], a_minute: None
) -> None:
    change(interval=None, crontab=CrontabSchedule.objects.create(minute="0"))
    other = "muster.check_heartbeats"
    PeriodicTask.objects.filter(name=other).update(kwargs="odd")
    schedule.install(using="default")
    assert PeriodicTask.objects.get(name=NAME).interval is None
    assert PeriodicTask.objects.get(name=other).interval == every(5, "seconds")


def test_equal_intervals_that_operators_have_made_are_no_obstacle(
    planned: list[datetime], a_minute: None
) -> None:
    IntervalSchedule.objects.bulk_create([IntervalSchedule(every=60, period="seconds")] * 2)
    schedule.install(using="default")
    assert PeriodicTask.objects.get(name=NAME).interval.every == 60


def test_missing_row_is_made_again_when_beat_starts(planned: list[datetime]) -> None:
    PeriodicTask.objects.filter(name=NAME).delete()
    Scheduler(app=app, lazy=True).setup_schedule()
    assert PeriodicTask.objects.get(name=NAME).interval == every(5, "seconds")


def test_function_with_a_crontab_is_run_by_beat_alone(planned: list[datetime]) -> None:
    change(interval=None, crontab=CrontabSchedule.objects.create(minute="0"), kwargs="odd")
    assert maintenance.run(NAME, now=NOW) == "done"
    assert maintenance.run(NAME, now=NOW + INTERVAL * 100, missed=1.5) is None
    assert maintenance.run(NAME, now=NOW + INTERVAL * 100) == "done"


# --- what the settings switch off -----------------------------------------------------------------


def test_switch_of_the_environment_is_true_or_false() -> None:
    assert not muster.from_environment({"MUSTER_DEAD_LETTER_ENABLED": "false"}).dead_letter_enabled
    assert muster.from_environment({"MUSTER_DEAD_LETTER_ENABLED": "true"}).dead_letter_enabled
    with pytest.raises(ImproperlyConfigured, match="'no': expected true or false"):
        muster.from_environment({"MUSTER_STALENESS_DETECTION_ENABLED": "no"})


def test_dead_letters_are_left_where_they_are_if_the_setting_says_so(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    drained: list[int] = []
    monkeypatch.setattr(dead_letters, "drain", lambda: drained.append(1))
    settings.MUSTER = replace(settings.MUSTER, dead_letter_enabled=False)
    assert "drained" not in maintenance.run("muster.drain_dead_letters", now=NOW)
    settings.MUSTER = replace(settings.MUSTER, dead_letter_enabled=True)
    maintenance.run("muster.drain_dead_letters", now=NOW + INTERVAL)
    assert drained == [1]


def test_part_of_a_check_that_fails_keeps_no_other_from_its_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    running = make_execution(ExecutionStatus.RUNNING)
    Worker.objects.update(gone_at=NOW, status="inactive")

    def mark_stale(*, now: datetime) -> None:
        raise OperationalError("canceling statement due to lock timeout")

    monkeypatch.setattr(fleet, "mark_stale", mark_stale)
    with pytest.raises(OperationalError, match="lock timeout"):
        maintenance.check_heartbeats(now=NOW)
    assert reread(running).status == ExecutionStatus.ABANDONED


def test_clock_that_was_set_back_stops_no_tick(runs: list[datetime]) -> None:
    maintenance.run(NAME, now=NOW + timedelta(seconds=600))
    assert maintenance.run(NAME, now=NOW, missed=2) == "done"
    assert maintenance.run(NAME, now=NOW, missed=2) is None, "it counts from now on"


def test_clocks_of_two_processes_may_differ_a_little(runs: list[datetime]) -> None:
    maintenance.run(NAME, now=NOW + timedelta(seconds=0.5))
    assert maintenance.run(NAME, now=NOW) is None
