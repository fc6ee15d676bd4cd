"""A worker probes itself until it stops, whatever its probes come to."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from celery.concurrency.thread import TaskPool
from kombu.asynchronous import Hub

from tests.waiting import wait_until
from workers.agent import Agent
from workers.probes import Prober
from workers.questions import Question

ANSWER_SECONDS = 0.5


@pytest.fixture
def turning(monkeypatch: pytest.MonkeyPatch) -> Iterator[Agent]:
    """An agent of one slot, in a loop and with a pool of threads as Celery has them."""
    monkeypatch.setattr("workers.probes.ANSWER_SECONDS", ANSWER_SECONDS)
    monkeypatch.setattr("workers.loop.LONGEST_TICK_SECONDS", 0.02)
    agent = Agent(worker_id=1, capacity=1, pool_kind="thread")
    hub, pool = Hub(), TaskPool(1)
    pool.start()
    there = object()
    consumer = SimpleNamespace(hub=hub, pool=pool, qos=None, connection=there, task_consumer=there)
    agent.loop.join(hub)
    agent.loop.attach(consumer)
    loop = threading.Thread(target=hub.run_forever)
    loop.start()
    yield agent
    hub.call_soon(hub.stop)
    loop.join(10)
    assert not loop.is_alive()
    hub.close()
    pool.stop()


def test_loop_that_is_stuck_is_noticed_until_it_turns_again(turning: Agent) -> None:
    prober, goes_on = Prober(turning), threading.Event()
    assert not any(prober.look().values())
    turning.loop.call_soon(goes_on.wait)  # type: ignore[arg-type]
    try:
        wait_until(lambda: prober.look()["loop"], seconds=10)
        found = prober.look()
        assert found["loop"] == "the consumer's loop did not turn for 0.5 s"
        assert found["pool"] is None, "it has not been asked: one cause, one failed check"
    finally:
        goes_on.set()
    wait_until(lambda: prober.look()["loop"] is None, seconds=10)


def test_threads_that_do_not_take_an_errand_are_noticed_until_they_do(turning: Agent) -> None:
    prober, goes_on = Prober(turning), threading.Event()
    hanging = turning.desk.pool.apply_async(goes_on.wait, args=(), callback=print)
    try:
        (why,) = {prober.look()["pool"], prober.look()["pool"]}
        assert why == "1 idle pool threads did not answer within 0.5 s"
        assert prober.look()["loop"] is None
    finally:
        goes_on.set()
    hanging.get(10)
    wait_until(lambda: prober.look()["pool"] is None, seconds=10)


def no_thread(*_: Any) -> None:
    raise RuntimeError("can't start new thread")


def test_prober_outlives_what_it_does_not_expect(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    prober, told = Prober(agent), []
    looks = iter([RuntimeError("can't start new thread"), {"disk": "it is full"}, {"disk": None}])

    def look() -> Any:
        found = next(looks)
        if isinstance(found, Exception):
            raise found
        return found

    def pause(*, is_fit: bool) -> None:
        told.append(is_fit)
        agent.is_stopping = len(told) == 3

    monkeypatch.setattr(prober, "look", look)
    monkeypatch.setattr(prober, "_pause", pause)
    monkeypatch.setattr(prober.fitness, "tell", lambda asked, failures: told.append(failures))
    monkeypatch.setattr(agent.code, "look", lambda: None)
    prober.run()
    assert told == [False, {"disk": "it is full"}, False]


def test_check_whose_thread_could_not_be_started_is_asked_the_next_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    question = Question(lambda: None)
    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", no_thread)
        with pytest.raises(RuntimeError, match="new thread"):
            question.ask()
    assert question.ask() is None
