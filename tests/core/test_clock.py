"""The clock that decides, and what is done while it cannot be trusted: it was set."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from orchestrator.core import clock, executions, fleet, maintenance
from orchestrator.core.clock import Reading, Watch
from orchestrator.core.executions.attempts import end_all
from orchestrator.core.executions.sweeping import KINDS
from orchestrator.core.models import Execution, Tick, Worker
from orchestrator.core.models.maintenance import CLOCK
from orchestrator.core.reasons import Reason
from orchestrator.core.state_machine import Move
from orchestrator.core.states import ExecutionStatus
from orchestrator.core.steady_clock import seconds_counted
from orchestrator.workflows.states import StepState
from settings.celery import app
from tests.factories import NOW, make_execution, make_step, make_worker, seconds
from tests.rows import reread

S = ExecutionStatus
STEPS = [600.0, -600.0]
WINDOW_SECONDS = 30.0


def reading(shown: float, earliest: float, latest: float | None = None) -> Reading:
    return Reading(NOW + seconds(shown), earliest, earliest if latest is None else latest)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (reading(0, 100), reading(5, 105)),
        (reading(0, 100), reading(5.9, 105)),
        # a database that was frozen for a minute answers with the time at its end, or, asked by
        # somebody who was frozen himself, with that at the beginning
        (reading(0, 100), reading(65, 105, 165)),
        (reading(0, 100), reading(5, 105, 165)),
        (reading(0, 100, 160), reading(65, 165)),
        (reading(60, 100, 160), reading(65, 165)),
        # an hour without a question: two quartzes are a second or two apart by then
        (reading(0, 100), reading(3602, 3700)),
        # two threads, of which the later one asked first
        (reading(5, 105), reading(0, 100)),
    ],
)
def test_what_a_slow_database_explains_is_no_step(before: Reading, after: Reading) -> None:
    assert clock.step_seconds(before, after) == 0


@pytest.mark.parametrize(
    ("before", "after", "step"),
    [
        (reading(0, 100), reading(605, 105), 600),
        (reading(0, 100), reading(-595, 105), -600),
        (reading(0, 100), reading(7, 105), 2),
        # in the best case for the clock, the answer was given at the very end, or beginning
        (reading(0, 100), reading(605, 105, 165), 540),
        (reading(0, 100), reading(-595, 105, 165), -600),
    ],
)
def test_what_nothing_else_explains_is_a_step(before: Reading, after: Reading, step: float) -> None:
    assert clock.step_seconds(before, after) == pytest.approx(step)


@pytest.mark.parametrize(
    ("before", "after", "narrow"),
    [
        # answered 3 s after it was asked: the earlier reading says how much of that was waiting
        (reading(0, 100), reading(5, 105, 108), reading(8, 108)),
        (reading(0, 100), reading(7, 105, 108), reading(8, 106, 108)),
        # a reading that was slow itself says less, and is never believed beyond what is possible
        (reading(0, 98, 100), reading(5, 105, 108), reading(8, 108)),
        (reading(0, 100), reading(4.5, 105, 105.2), reading(4.7, 105.2)),
        (reading(0, 100), reading(5.1, 105), reading(5.1, 105)),
        (reading(0, 100), reading(9, 105, 108), reading(9, 105, 108)),
    ],
)
def test_slow_answer_is_narrowed_by_the_one_before(
    before: Reading, after: Reading, narrow: Reading
) -> None:
    found = clock.narrowed(before, after)
    assert abs((found.at - narrow.at).total_seconds()) < 1e-6
    assert (found.earliest, found.latest) == pytest.approx((narrow.earliest, narrow.latest))


def test_time_that_is_told_lags_behind_by_no_slow_answer(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch.note(reading(0, 100))
    monkeypatch.setattr(clock, "_ask_postgresql", lambda: reading(5, 105, 108))
    monkeypatch.setattr(clock, "_ask_host", lambda: reading(5, 105, 108))
    monkeypatch.setattr(clock, "seconds_counted", lambda: 108.0)
    assert clock.asked_now() == NOW + seconds(8)
    assert not watch.steps


def test_watch_counts_from_its_first_reading_and_from_each_step() -> None:
    watch = Watch()

    def steady_since(shown: float, counted: float) -> float | None:
        watch.note(reading(shown, counted))
        return watch.steady_since

    assert [steady_since(0, 100), steady_since(5, 105)] == [100, 100]
    assert not watch.steps
    assert [steady_since(610, 110), steady_since(615, 115)] == [110, 110]
    assert [step.seconds for step in watch.steps] == [600]


def test_watch_counts_anew_after_a_time_without_a_reading() -> None:
    watch = Watch()
    for shown, counted in ((0, 100), (6, 106), (18, 118)):
        watch.note(reading(shown, counted))
    assert watch.steady_since == watch.watched_since == 118
    assert not watch.steps


@pytest.mark.usefixtures("database")
@pytest.mark.parametrize("step", STEPS)
def test_step_is_seen_by_the_next_who_asks(
    step: float, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = clock.asked_now()
    assert not clock.was_set(within_seconds=WINDOW_SECONDS)
    assert watch.last is not None
    # the clock that was asked was wrong by a step, which somebody has taken back since
    watch.last = watch.last._replace(at=watch.last.at - seconds(step))
    assert abs((clock.asked_now() - before).total_seconds()) < 10
    assert clock.was_set(within_seconds=WINDOW_SECONDS)
    assert clock.steady_seconds() < 10
    behind, ahead = clock.displaced(within_seconds=WINDOW_SECONDS)
    off_seconds = behind.total_seconds() if step > 0 else ahead.total_seconds()
    assert off_seconds == pytest.approx(600, abs=10)


@pytest.mark.usefixtures("database")
def test_slow_answer_is_asked_for_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [Reading(NOW, 100.0, 112.0), Reading(NOW + seconds(12), 112.0, 112.001)]
    monkeypatch.setattr(clock, "_ask_postgresql", lambda: answers.pop(0))
    monkeypatch.setattr(clock, "_ask_host", lambda: answers.pop(0))
    monkeypatch.setattr(clock, "seconds_counted", lambda: 112.001)
    assert clock.now() == NOW + seconds(12)
    assert answers == []


@pytest.mark.takes_time
def test_time_goes_on_from_where_it_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = iter([50.0, 50.0, 53.5])
    monkeypatch.setattr(clock, "seconds_counted", lambda: next(counted))
    moment = clock.Running(NOW)
    assert [moment(), moment()] == [NOW, NOW + seconds(3.5)]


# --- what is done meanwhile ----------------------------------------------------------------------


def set_clock(watch: Watch, step: float, *, ago: float = 0.0) -> None:
    """Somebody has set the clock, and this process has seen it."""
    noticed = seconds_counted() - ago
    watch.steady_since = noticed
    watch.steps.append(clock.Step(step, noticed))


def lost(now: datetime) -> list[str]:
    return [worker.name for worker in fleet.mark_stale(now=now)]


@pytest.mark.usefixtures("database")
@pytest.mark.parametrize("step", STEPS)
def test_nobody_is_lost_by_a_clock_that_was_set_just_now(step: float, watch: Watch) -> None:
    worker = make_worker()
    now = NOW + seconds(step)
    set_clock(watch, step)
    assert Worker.objects.eligible(now).exists(), "it works, and goes on being given work"
    assert worker.is_eligible(now)
    assert not Worker.objects.stale(now).exists()
    assert lost(now) == []


@pytest.mark.usefixtures("database")
@pytest.mark.parametrize("step", STEPS)
def test_worker_that_has_not_beaten_since_the_clock_was_set_is_lost_after_a_window(
    step: float, watch: Watch
) -> None:
    make_worker("dead")
    now = NOW + seconds(step + WINDOW_SECONDS + 1)
    make_worker("alive", now=now)
    set_clock(watch, step, ago=WINDOW_SECONDS + 1)
    assert list(Worker.objects.fresh(now).values_list("name", flat=True)) == ["alive"]
    assert lost(now) == ["dead"]


@pytest.mark.usefixtures("database")
def test_process_that_has_just_begun_declares_nobody_lost(watch: Watch) -> None:
    """The clock may have been set just before, and one of two workers have beaten since."""
    make_worker("silent")
    late = NOW + seconds(WINDOW_SECONDS + 1)
    make_worker("beats", now=late)
    watch.steady_since = seconds_counted()
    assert lost(late) == []


@pytest.mark.usefixtures("database")
def test_process_that_has_watched_for_a_window_needs_no_witness(watch: Watch) -> None:
    make_worker("silent")
    watch.steady_since = seconds_counted() - WINDOW_SECONDS
    assert lost(NOW + seconds(WINDOW_SECONDS + 1)) == ["silent"]


@pytest.mark.usefixtures("database")
def test_nobody_is_lost_by_a_clock_that_was_set_and_set_back_while_it_could_not_be_read(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The heartbeats of that time are ten minutes old, and no reading shows why."""
    make_worker("beat in between", now=NOW - seconds(600))
    moment = clock.Running(NOW)
    counted = seconds_counted()
    watch.note(Reading(NOW - seconds(12), counted - 12, counted - 12))
    watch.note(Reading(NOW, counted, counted))
    assert not watch.steps
    assert lost(NOW) == []

    # a check that waited through all of it
    monkeypatch.setattr(clock, "asked_now", lambda: NOW)
    assert moment.was_set()
    assert not clock.Running(NOW).was_set()


DUE: list[tuple[ExecutionStatus, dict[str, Any], bool]] = [
    (S.SCHEDULED, {"start_by": NOW}, False),
    (S.RUNNING, {"run_deadline_at": NOW}, False),
    (S.CANCELING, {"run_deadline_at": NOW}, False),
    (S.REQUESTED, {"deadline_at": NOW}, True),
    (S.SCHEDULED, {"deadline_at": NOW}, True),
    (S.RUNNING, {"deadline_at": NOW - seconds(10)}, True),
    (S.CANCELING, {"deadline_at": NOW - seconds(10)}, True),
]


@pytest.mark.usefixtures("database", "sent")
@pytest.mark.parametrize(("status", "due", "ends_at_once"), DUE)
def test_only_deadlines_count_until_the_clock_was_steady_for_a_window(
    status: ExecutionStatus, due: dict[str, Any], ends_at_once: bool, watch: Watch
) -> None:
    # gone: a busy worker's would go back
    gone = make_worker(status="inactive")
    execution = make_execution(status, worker=gone, created_at=NOW - seconds(60), **due)

    def is_over() -> bool:
        executions.sweep(now=NOW)
        return reread(execution).is_terminal

    set_clock(watch, 600.0, ago=WINDOW_SECONDS - 5)
    assert is_over() == ends_at_once
    watch.steps.clear()
    set_clock(watch, 600.0, ago=WINDOW_SECONDS)
    assert is_over()


@pytest.mark.usefixtures("database", "sent")
@pytest.mark.parametrize(("heartbeat", "ends"), [(NOW, True), (NOW - seconds(590), False)])
def test_process_that_has_just_begun_takes_the_workers_for_its_witnesses(
    heartbeat: datetime, ends: bool, watch: Watch
) -> None:
    """A heartbeat that seems old may be of a worker that lives, by a clock that was set."""
    worker = make_worker(now=heartbeat)
    execution = make_execution(S.RUNNING, worker=worker, run_deadline_at=NOW - seconds(1))
    watch.steady_since = seconds_counted()
    assert executions.sweep(now=NOW)["not_ended"] == ends
    assert reread(execution).is_terminal == ends


@pytest.mark.usefixtures("database")
def test_pause_that_was_written_before_the_clock_was_set_back_is_over() -> None:
    paused = make_execution(S.SCHEDULING, wait_reason="full", next_retry_at=NOW + seconds(601))
    make_execution(S.SCHEDULING, wait_reason="full", next_retry_at=NOW + seconds(2))
    make_execution(S.REQUESTED, next_retry_at=NOW + seconds(601))  # its policy says so
    assert list(Execution.objects.backlog(NOW)) == [paused]


def failed_once(at: datetime) -> Execution:
    """It waits for its second attempt, ten minutes after its first has failed."""
    execution = make_execution(S.RUNNING, worker=None)
    moves = [Move(execution.pk, S.RUNNING, 1, {"next_retry_at": at + seconds(600)})]
    assert Execution.objects.transition_many(
        "retry", moves, now=at, actor="w1", reason=Reason.ACTION_FAILED
    )
    return execution


@pytest.mark.usefixtures("database", "sent")
def test_retry_that_waits_for_a_time_of_a_clock_that_was_set_back_is_due() -> None:
    """Nobody has to have seen it: the executor that had may be gone."""
    before, since = failed_once(NOW), failed_once(NOW - seconds(601))
    early = NOW - seconds(600)

    def due() -> list[Execution]:
        return list(Execution.objects.backlog(early))

    assert maintenance.check_timeouts(now=NOW)["brought_forward"] == 0
    assert due() == []
    assert maintenance.check_timeouts(now=early)["brought_forward"] == 1
    assert due() == [before]
    # by a worker that has not noticed
    after = failed_once(NOW)
    assert maintenance.check_timeouts(now=early + seconds(5))["brought_forward"] == 1
    assert after in Execution.objects.backlog(early + seconds(5))
    failed_once(NOW)
    assert maintenance.check_timeouts(now=early + seconds(31))["brought_forward"] == 0
    assert since.pk != before.pk


@pytest.mark.usefixtures("database", "sent")
def test_deadline_that_a_clock_gave_which_was_set_back_is_as_long_as_it_was() -> None:
    early = NOW - seconds(600)
    times: dict[str, Any] = {"created_at": NOW, "deadline_at": NOW + seconds(60)}
    waits, runs = make_execution(S.SCHEDULING, **times), make_execution(S.RUNNING, **times)
    over = make_execution(S.COMPLETED, **times)
    before = make_execution(S.REQUESTED, **times | {"created_at": early})
    maintenance.check_timeouts(now=NOW)
    for later in (0, 5):  # the second time changes nothing
        maintenance.check_timeouts(now=early + seconds(later))
        for row in map(reread, (waits, runs)):
            assert (row.created_at, row.deadline_at) == (early, early + seconds(60))
        for row in map(reread, (over, before)):
            assert row.deadline_at == NOW + seconds(60)
    maintenance.check_timeouts(now=early + seconds(61))
    assert reread(waits).reason == Reason.DEADLINE_PASSED


@pytest.mark.usefixtures("database", "sent")
def test_step_that_is_tried_again_at_a_time_of_a_clock_that_was_set_back_is_due() -> None:
    late, early = NOW + seconds(660), NOW - seconds(600)
    steps = {
        entered_at: make_step(
            StepState.WAITING_FOR_RETRY, state_entered_at=entered_at, next_retry_at=late
        )
        for entered_at in (NOW, early)
    }
    maintenance.check_timeouts(now=NOW)
    maintenance.check_timeouts(now=early)
    due_at = {at: reread(step).next_retry_at for at, step in steps.items()}
    assert due_at == {NOW: early, early: late}


@pytest.mark.usefixtures("database", "sent")
def test_nothing_is_rejected_for_want_of_a_worker_just_after_the_clock_was_set(
    watch: Watch,
) -> None:
    make_worker("silent", status="inactive", gone_at=NOW - seconds(600))
    execution = make_execution()

    def status(now: datetime) -> str:
        executions.schedule_backlog(
            placement=fleet.Placement(), now=now, actor="executor", limit=10
        )
        return reread(execution).status

    set_clock(watch, 600.0, ago=WINDOW_SECONDS - 5)
    assert status(NOW) == "scheduling"
    watch.steps.clear()
    set_clock(watch, 600.0, ago=WINDOW_SECONDS)
    assert status(NOW + seconds(3)) == "failed"


# --- what was kept from going on -----------------------------------------------------------------


@pytest.fixture
def paused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is given the time is at once kept from going on for PAUSE: its database is frozen, its
    network silent, or its own process stopped."""
    counted = itertools.chain([100.0], itertools.repeat(100.0 + PAUSE.total_seconds()))
    monkeypatch.setattr(clock, "seconds_counted", lambda: next(counted))


PAUSE = seconds(20)
LATER = NOW + PAUSE


@pytest.mark.takes_time
@pytest.mark.usefixtures("database", "paused")
def test_worker_that_has_beaten_meanwhile_is_not_lost_by_a_time_of_before() -> None:
    make_worker("alive", now=LATER)
    assert lost(NOW) == []


@pytest.mark.takes_time
@pytest.mark.usefixtures("database", "paused", "sent")
def test_what_was_accepted_meanwhile_keeps_its_deadline() -> None:
    """Another process has looked at the clock since: it was not set back."""
    Tick.objects.create(name=CLOCK, ran_at=LATER)
    deadline_at = LATER + seconds(60)
    execution = make_execution(S.REQUESTED, created_at=LATER, deadline_at=deadline_at)
    assert maintenance.check_timeouts(now=NOW)["brought_forward"] == 0
    assert reread(execution).deadline_at == deadline_at


@pytest.mark.takes_time
@pytest.mark.usefixtures("database", "paused", "sent")
def test_what_was_dispatched_meanwhile_is_given_back_at_a_later_time() -> None:
    make_worker("other", now=LATER)
    execution = make_execution(S.REQUESTED)
    moves = [Move(execution.pk, S.REQUESTED, 0, {"worker": make_worker("gone", status="inactive"),
             "start_by": LATER + seconds(60)})]  # fmt: skip
    Execution.objects.transition_many("schedule", moves, now=LATER, actor="executor")
    assert maintenance.check_heartbeats(now=NOW)["released"] == 1
    assert list(execution.history.values_list("event", "at")) == [
        ("schedule", LATER),
        ("give_back", LATER),
    ]


@pytest.mark.takes_time
@pytest.mark.usefixtures("database", "paused")
def test_function_that_waited_for_its_tick_is_given_the_time_of_after(
    instead: Callable[[str, Any], None],
) -> None:
    given: list[datetime] = []
    instead("muster.check_timeouts", lambda now: given.append(now))
    maintenance.run("muster.check_timeouts", now=NOW)
    assert given == [LATER]


@pytest.mark.usefixtures("database", "sent")
@pytest.mark.parametrize("step", STEPS)
def test_sweep_that_began_before_the_clock_was_set_ends_nothing(step: float, watch: Watch) -> None:
    overdue = make_execution(S.REQUESTED, deadline_at=NOW)
    moment = clock.Running(NOW)
    watch.steps.append(clock.Step(step, seconds_counted()))
    kind = KINDS["deadline_passed"]
    values: dict[str, Any] = {"reason": kind.reason, "detail": kind.detail, "failed_by": "sweep"}
    assert end_all(kind.overdue(NOW), moment=moment, **values) == 0
    assert not reread(overdue).is_terminal
    assert end_all(kind.overdue(NOW), moment=clock.Running(NOW), **values) == 1


@pytest.fixture
def set_back(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks the clock once more sees that it was set back."""
    ask = clock.asked_now

    def asked_now() -> datetime:
        watch.steps.append(clock.Step(-600.0, seconds_counted()))
        return ask()

    monkeypatch.setattr(clock, "asked_now", asked_now)


@pytest.mark.usefixtures("database", "set_back")
def test_nobody_is_lost_by_a_check_during_which_the_clock_was_set() -> None:
    make_worker("silent")
    assert lost(NOW + seconds(WINDOW_SECONDS + 1)) == []


@pytest.mark.usefixtures("database", "set_back")
def test_function_that_waited_for_its_tick_while_the_clock_was_set_is_left_to_the_next(
    instead: Callable[[str, Any], None],
) -> None:
    given: list[datetime] = []
    instead("muster.check_timeouts", lambda now: given.append(now))
    assert maintenance.run("muster.check_timeouts", now=NOW) is None
    assert given == []


@pytest.mark.usefixtures("database", "sent")
def test_maintenance_asks_the_clock_before_it_ends_anything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Had it been set since it was last asked, everybody would seem to be late."""
    app.loader.import_default_modules()
    given: list[datetime] = []
    monkeypatch.setattr(clock, "asked_now", lambda: NOW)
    monkeypatch.setattr(maintenance, "run", lambda name, *, now, missed=0: given.append(now))
    app.tasks["muster.check_timeouts"]()
    assert given == [NOW]
