"""A worker that stops gives back what it has not begun, and records what has ended."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import OperationalError, connections

from orchestrator.core import fleet
from orchestrator.core.executions import Ended
from orchestrator.core.models import Worker
from orchestrator.core.reasons import Reason
from orchestrator.core.states import ExecutionStatus
from tests.logged import logged
from tests.rows import ended, reread
from tests.waiting import wait_until
from tests.workers.test_database_threads import asked, rows, statuses
from tests.workers.test_desk import Offered
from workers.agent import Agent
from workers.attempts import Attempt
from workers.departure import END_LOST, EXIT_LOST, RUN_LOST
from workers.host import Answer

pytestmark = [
    pytest.mark.usefixtures("database", "sent"),
    # threads of the worker write while a test looks on
    pytest.mark.parametrize("database", ["postgresql"], indirect=True),
]

S = ExecutionStatus


@pytest.fixture(autouse=True)
def unheard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workers.desk.state.task_ready", lambda *_: None)
    monkeypatch.setattr("workers.departure.relay.flush", lambda: True)


def claimed(agent: Agent, execution: Any) -> Any:
    """An attempt that the worker has claimed."""
    attempt: Any = Offered([], execution.pk)
    attempt.execution, attempt.is_lost = execution, False
    agent.desk.claimed[attempt.key] = attempt
    agent.desk.in_hand.take([attempt.key])
    return attempt


@contextmanager
def draining(agent: Agent) -> Iterator[None]:
    """Its thread that waits for a request to stop, and ends with its pool."""
    agent.departure.start()
    try:
        yield
    finally:
        agent.stops.set()
        agent.departure._pool_is_down.set()
        agent.departure.join(60)


def leave(agent: Agent) -> None:
    """As on the main thread of a worker, which ends with its process."""
    agent.departure.leave()
    connections.close_all()


def test_claim_that_is_granted_after_the_end_of_the_loop_goes_back_while_another_action_runs(
    w1: Agent,
) -> None:
    running, late, refused = rows(3, S.RUNNING)
    claimed(w1, running).job = object()
    batch = [asked(late), asked(refused)]
    w1.desk.in_hand.take([each.key for each in batch])
    w1.departure.drain("shutting down", within_seconds=60)
    with draining(w1):
        wait_until(lambda: Worker.objects.get().status == "draining")

        w1.claimer.answers.append(Answer(batch, [late]))

        wait_until(lambda: reread(late).status == "requested")
        wait_until(lambda: w1.desk.in_hand.keys() == [running.key])
        assert reread(late).retry_count == 0
        assert statuses([running]) == ["running"]


def test_drain_is_announced_again_until_that_succeeds(
    w1: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    (dispatched,) = rows(1, S.SCHEDULED)
    drain, refusals = fleet.drain, [ValueError("what nobody expects"), OperationalError("gone")]

    def refuse_twice(**about: Any) -> bool:
        if refusals:
            raise refusals.pop()
        return drain(**about)

    monkeypatch.setattr("workers.departure.ANNOUNCE_SECONDS", 0.0)
    monkeypatch.setattr("workers.departure.fleet.drain", refuse_twice)
    with draining(w1):
        assert Worker.objects.get().status == "active", "nobody has asked it to stop"

        w1.departure.drain("shutting down", within_seconds=60)

        wait_until(lambda: reread(dispatched).status == "requested")
        assert Worker.objects.get().status == "draining"


def test_what_runs_is_killed_when_the_time_is_up_whatever_goes_wrong(
    w1: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    (execution,) = rows(1, S.RUNNING)
    running = claimed(w1, execution)
    running.is_stopped = False
    kills: list[Any] = []

    def fail(**_: Any) -> bool:
        raise OperationalError("gone")

    def kill() -> None:
        kills.append(running.is_stopped)
        raise OSError("it may not")

    monkeypatch.setattr("workers.departure.fleet.drain", fail)
    monkeypatch.setattr(w1.departure, "_kill_all", kill)
    with draining(w1):
        w1.departure.drain("shutting down", within_seconds=0)

        wait_until(lambda: len(kills) > 1)
    assert set(kills) == {True}


def test_worker_that_gives_up_ends_though_it_cannot_kill_what_runs(
    w1: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    def leave_at_once(status: int) -> None:
        raise SystemExit(status)

    monkeypatch.setattr(w1.departure, "_kill_all", lambda: 1 / 0)
    monkeypatch.setattr("workers.departure.os._exit", leave_at_once)
    with pytest.raises(SystemExit, match=str(EXIT_LOST)):
        w1.departure.die("it was declared lost")


def test_worker_that_gives_up_names_what_is_lost_with_it(
    w1: Agent, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Also if a thread that is stuck holds what others need."""

    def leave_at_once(status: int) -> None:
        raise SystemExit(status)

    monkeypatch.setattr("workers.departure.os._exit", leave_at_once)
    monkeypatch.setattr(w1.departure, "_kill_all", w1.desk.claimed.clear)
    monkeypatch.setattr("workers.departure.MOST_LOST", 3)
    over, begun, ready, more = rows(4, S.RUNNING)
    w1.finisher.put(Ended(over, Reason.SUCCEEDED, {}))
    claimed(w1, begun).job = object()
    claimed(w1, ready).job = None
    claimed(w1, more).job = None
    with w1.finisher.ends.mutex, w1.desk.in_hand._lock, pytest.raises(SystemExit):
        w1.departure.die("it was declared lost")

    (end,) = logged(caplog, END_LOST)
    assert (end["execution_id"], end["attempt"]) == (str(over.pk), over.attempt)
    assert end["reason"] == "succeeded"
    killed = {line["execution_id"]: line["begun"] for line in logged(caplog, RUN_LOST)}
    assert killed == {str(begun.pk): True, str(ready.pk): False}
    assert [line["n"] for line in logged(caplog, "more is lost than is listed")] == [1]


def test_two_threads_that_give_up_say_so_once(
    w1: Agent, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def leave_at_once(status: int) -> None:
        raise SystemExit(status)

    monkeypatch.setattr("workers.departure.os._exit", leave_at_once)
    monkeypatch.setattr("workers.departure.LAST_LINES_SECONDS", 0.0)
    monkeypatch.setattr(w1.departure, "_kill_all", lambda: None)
    for _ in range(2):
        with pytest.raises(SystemExit, match=str(EXIT_LOST)):
            w1.departure.die("its heartbeat could not be renewed")
    assert len(logged(caplog, "worker gives up")) == 1


def test_end_that_is_recorded_is_not_lost_any_more(working: Agent) -> None:
    (over,) = rows(1, S.RUNNING)
    working.finisher.put(Ended(over, Reason.SUCCEEDED, {}))
    assert working.finisher.flush(10)
    assert working.finisher.unrecorded == {}


def test_what_cannot_be_given_back_for_want_of_a_thread_is_left_to_the_audit(
    w1: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    (late,) = rows(1, S.RUNNING)
    w1.desk.in_hand.take([late.key])

    def fail(*_: Any) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", fail)
        w1.returns.give_back_soon([late], Reason.QUEUE_PAUSED)
    assert w1.desk.in_hand.keys() == []


def test_attempt_whose_release_came_as_its_worker_stops_goes_back_and_acknowledges_nothing(
    w1: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    (execution,) = rows(1, S.RUNNING)
    attempt = claimed(w1, execution)
    w1.is_stopping = True
    monkeypatch.setattr(w1.desk, "claim_waiting", lambda: 1 / 0)  # what the loop alone may do

    w1.loop.call_soon(lambda: w1.desk.go_on([attempt]))

    assert list(w1.desk.ready) == [attempt]
    w1.departure._give_back()
    assert ended(execution) == ("requested", "given_back")


def test_what_waits_for_its_release_or_for_a_turn_of_the_loop_goes_back_when_the_pool_is_down(
    w1: Agent,
) -> None:
    ran, waiting = rows(2, S.RUNNING)
    claimed(w1, ran).job = object()
    claimed(w1, waiting)
    w1.is_stopping = True

    w1.departure.leave()

    assert ended(waiting) == ("requested", "given_back")
    assert reread(waiting).retry_count == 0
    assert statuses([ran]) == ["running"], "nobody knows that it has not begun"


def test_worker_does_not_leave_while_it_ends_what_a_killed_child_left_behind(
    working: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    (execution,) = rows(1, S.RUNNING)
    gone = threading.Event()
    monkeypatch.setattr("workers.attempts.processes.terminate", lambda *_, **__: gone.wait(60))
    attempt: Any = Attempt.__new__(Attempt)
    attempt.execution, (attempt.execution_id, attempt.number) = execution, execution.key
    attempt.time_start, attempt.desk, attempt.job = 1.0, working.desk, object()
    attempt.send_event = lambda *_, **__: None
    working.desk.claimed[attempt.key] = attempt
    working.is_stopping = True
    attempt.on_lost(SimpleNamespace(exception=ValueError("killed")))

    leaving = threading.Thread(target=leave, args=[working])
    leaving.start()
    leaving.join(0.5)
    assert leaving.is_alive()
    assert statuses([execution]) == ["running"]
    gone.set()
    leaving.join(60)

    assert ended(execution) == ("abandoned", Reason.PROCESS_LOST)
    assert Worker.objects.get().status_reason == "stopped"
