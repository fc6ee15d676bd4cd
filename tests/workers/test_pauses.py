"""A worker starts nothing of what it pauses, until the time or a health check ends the pause."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator.core import executions, fleet
from orchestrator.core.executions import Ended
from orchestrator.core.models import Execution, Worker
from orchestrator.core.reasons import Reason
from orchestrator.core.states import ExecutionStatus
from orchestrator.queues.models import WorkQueue
from tests.factories import NOW, make_execution, make_worker, seconds
from tests.rows import ended, reread
from tests.workers.test_desk import Offered
from workers import hiding
from workers.agent import Agent
from workers.host import Answer
from workers.pauses import Pauses

pytestmark = pytest.mark.usefixtures("database", "sent")

S = ExecutionStatus
HEALTH: dict[str, Any] = {"answer": None}


def health() -> object:
    """What the health check of a queue says."""
    HEALTH["asked"] = HEALTH.get("asked", 0) + 1
    return HEALTH["answer"]


CHECK = f"{__name__}.health"


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Seconds that pass when a test says so."""
    passing = SimpleNamespace(now=1_000.0)
    passing.monotonic = lambda: passing.now
    monkeypatch.setattr("workers.pauses.time", passing)
    return passing


@pytest.fixture
def pauses(w1: Agent, time: SimpleNamespace) -> Pauses:
    HEALTH.clear()
    HEALTH["answer"] = None
    return w1.pauses


def of(queue: str | None, status: S = S.SCHEDULED, **values: Any) -> Execution:
    lane = "input" if queue else None
    return make_execution(status, worker=make_worker("w1"), queue=queue, lane=lane, **values)


def make_queue(name: str = "orders", **values: Any) -> WorkQueue:
    return WorkQueue.objects.create(name=name, created_at=NOW, updated_at=NOW, **values)


def row(after_seconds: float = 0) -> list[str]:
    """What the worker's row says that it pauses."""
    now = NOW + seconds(after_seconds)
    return list(fleet.paused(Worker.objects.get(name="w1").queue_pauses, now=now))


def test_only_what_belongs_to_the_paused_queue_is_held(pauses: Pauses) -> None:
    assert not pauses.holds(of("orders"))
    pauses.note(of("orders"))
    assert pauses.holds(of("orders"))
    assert not pauses.holds(of("mail"))
    assert not pauses.holds(of(None))


def test_without_a_queue_the_action_alone_is_held(pauses: Pauses) -> None:
    pauses.note(of(None))
    assert pauses.holds(of(None))
    assert not pauses.holds(of("orders"))


def test_pause_is_over_after_its_time_and_further_deferrals_prolong_it(
    pauses: Pauses, time: SimpleNamespace
) -> None:
    pauses.note(of("orders"))
    time.now += 20
    pauses.note(of("orders"))
    time.now += 29
    assert pauses.holds(of("orders"))
    time.now += 1
    assert not pauses.holds(of("orders"))


def test_length_is_the_queues_and_the_row_says_so(pauses: Pauses, time: SimpleNamespace) -> None:
    make_queue(defer_pause_seconds=7)
    pauses.note(of("orders"))
    pauses.look(now=NOW)
    assert row(6.9) == ["orders"]
    assert row(7) == []
    time.now += 7
    assert not pauses.holds(of("orders"))
    pauses.look(now=NOW + seconds(7))
    assert Worker.objects.get(name="w1").queue_pauses == {}


def test_pause_whose_record_was_lost_is_recorded_with_what_is_left_of_it(
    pauses: Pauses, time: SimpleNamespace
) -> None:
    pauses.note(of("orders"))
    time.now += 10
    pauses.look(now=NOW + seconds(10))
    assert row(29.9) == ["orders"]
    assert row(30) == []


def test_looks_do_not_prolong_a_pause(pauses: Pauses, time: SimpleNamespace) -> None:
    pauses.note(of("orders"))
    for second in range(31):
        pauses.look(now=NOW + seconds(second))
        time.now += 1
    assert not pauses.holds(of("orders"))
    assert Worker.objects.get(name="w1").queue_pauses == {}


def test_clock_that_is_set_does_not_prolong_a_pause(pauses: Pauses, time: SimpleNamespace) -> None:
    pauses.note(of("orders"))
    pauses.look(now=NOW + seconds(600))
    time.now += 10
    pauses.look(now=NOW + seconds(10))  # it was set back
    assert row(10) == ["orders"]
    assert row(30) == []


@pytest.mark.parametrize(
    ("answer", "goes_on"), [(None, True), (True, True), (False, False), ("press is cold", False)]
)
def test_health_check_ends_a_pause_early_if_it_passes(
    pauses: Pauses, time: SimpleNamespace, settings: Any, answer: object, goes_on: bool
) -> None:
    allow(settings, CHECK)
    make_queue(health_check=CHECK)
    HEALTH["answer"] = answer
    pauses.note(of("orders"))
    pauses.look(now=NOW)
    assert "asked" not in HEALTH, "the deferral itself is the newest answer"
    time.now += 5
    pauses.look(now=NOW + seconds(5))
    assert HEALTH["asked"] == 1
    assert pauses.holds(of("orders")) is not goes_on
    assert row(5) == ([] if goes_on else ["orders"])


def test_deferral_that_comes_while_the_check_is_asked_counts(
    pauses: Pauses, time: SimpleNamespace, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    allow(settings, CHECK)
    make_queue(health_check=CHECK)
    execution = of("orders")
    pauses.note(execution)
    time.now += 5

    def passes(_: object) -> None:
        time.now += 1
        pauses.note(execution)

    monkeypatch.setattr("workers.pauses.Question.ask", passes)
    pauses.look(now=NOW + seconds(5))
    assert pauses.holds(execution)


def test_health_check_is_asked_every_five_seconds(
    pauses: Pauses, time: SimpleNamespace, settings: Any
) -> None:
    allow(settings, CHECK)
    make_queue(health_check=CHECK)
    HEALTH["answer"] = "press is cold"
    pauses.note(of("orders"))
    for second in range(16):
        pauses.look(now=NOW + seconds(second))
        time.now += 1
    assert HEALTH["asked"] == 3


@pytest.mark.parametrize("allowed", ["", "elsewhere.check"])
def test_queue_cannot_choose_what_the_worker_calls(
    pauses: Pauses, time: SimpleNamespace, settings: Any, allowed: str
) -> None:
    allow(settings, allowed)
    make_queue(health_check=CHECK)
    pauses.note(of("orders"))
    time.now += 6
    pauses.look(now=NOW + seconds(6))
    assert "asked" not in HEALTH
    assert pauses.holds(of("orders"))


def test_check_that_cannot_be_imported_ends_no_pause(
    pauses: Pauses, time: SimpleNamespace, settings: Any
) -> None:
    allow(settings, "nowhere.check")
    make_queue(health_check="nowhere.check")
    pauses.note(of("orders"))
    time.now += 6
    pauses.look(now=NOW + seconds(6))
    assert pauses.holds(of("orders"))


def allow(settings: Any, checks: str) -> None:
    settings.MUSTER = replace(settings.MUSTER, queue_health_checks=checks)


def test_what_was_sent_ahead_is_returned_at_each_look(pauses: Pauses) -> None:
    pauses.note(of("orders", S.RUNNING))
    ahead, other = of("orders"), of("mail")
    pauses.look(now=NOW)
    later = of("orders")  # by an executor that has not seen the pause yet
    pauses.look(now=NOW + seconds(1))
    assert [reread(each).status for each in (ahead, later, other)] == [
        "requested",
        "requested",
        "scheduled",
    ]


def test_deferral_holds_the_next_before_its_slot_is_free(w1: Agent, pauses: Pauses) -> None:
    execution = of("orders", S.RUNNING)
    attempt: Any = Offered([], execution.pk)
    attempt.execution = execution
    w1.desk.ended(attempt, Reason.TASK_REJECTED, {})
    assert pauses.holds(of("orders"))


def test_what_is_claimed_of_a_paused_queue_goes_back_and_is_not_started(
    w1: Agent, pauses: Pauses, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.desk.state.task_ready", lambda *_: None)
    monkeypatch.setattr(
        w1.returns,
        "give_back_soon",
        lambda late, reason: w1.returns._hand_over(
            late, [each.key for each in late], reason=reason
        ),
    )
    pauses.note(of("orders", S.RUNNING))
    story: list[str] = []
    held, free = of("orders", S.RUNNING), of("mail", S.RUNNING)
    offered: list[Any] = [Offered(story, held.pk), Offered(story, free.pk)]
    w1.desk.offer(offered)
    batch = w1.claimer.asked.get_nowait()
    given = {each.pk: executions.Contents({}) for each in (held, free)}
    maskers = dict.fromkeys(given, hiding.NOTHING)
    w1.claimer.answers.append(Answer(batch, [held, free], (), given, maskers))
    w1.desk.claim_waiting()
    assert story.count("started") == 1
    assert reread(held).status == "requested"
    assert reread(held).reason == "queue_paused"
    assert reread(held).retry_count == 0
    assert w1.desk.in_hand.keys() == [free.key]
    assert list(w1.desk.claimed) == [free.key]


def test_thread_of_pauses_outlives_what_it_does_not_expect(
    w1: Agent, pauses: Pauses, time: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[Any] = []

    def look(**_: Any) -> None:
        looks.append(None)
        pauses._noted.set()
        w1.is_stopping = len(looks) == 2
        if len(looks) == 1:
            raise RuntimeError("can't start new thread")

    time.sleep = lambda _: None
    monkeypatch.setattr(pauses, "look", look)
    pauses._noted.set()
    pauses.run()
    assert len(looks) == 2


def test_cancel_of_what_is_paused_is_confirmed(w1: Agent, pauses: Pauses) -> None:
    pauses.note(of("orders", S.RUNNING))
    execution = of("orders", S.CANCELING)
    end = Ended(execution, Reason.CANCELLED_RUNNING, {})
    executions.finish([end], now=NOW, actor="w1")
    assert ended(execution) == ("cancelled", "cancelled_running")


def test_nothing_is_read_while_nothing_is_paused(
    pauses: Pauses, django_assert_num_queries: Any
) -> None:
    execution = of("orders")
    with django_assert_num_queries(0):
        assert not pauses.holds(execution)
