"""The watch of a worker's queues: what is not consumed is noticed, and consumed again."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from celery.bootsteps import CLOSE, RUN  # type: ignore[attr-defined]

from orchestrator.core import topology
from workers.agent import Agent
from workers.broker_watch import BrokerWatch
from workers.fitness import QUEUE_CHECK, Fitness

MAIN, CANCEL = (spec.name for spec in topology.worker_queues(1))


class Consumed:
    """A consumer that notes down what becomes of it."""

    def __init__(self) -> None:
        self.story: list[str] = []

    def cancel(self) -> None:
        self.story.append("cancel")

    def consume(self) -> None:
        self.story.append("consume")


@pytest.fixture
def connected(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> Agent:
    """A worker with a connection, whose loop is this thread."""
    monkeypatch.setattr(agent.loop, "call_soon", lambda do: do())
    worker = SimpleNamespace(blueprint=SimpleNamespace(state=RUN))
    loop: Any = SimpleNamespace(connection=object(), task_consumer=Consumed(), controller=worker)
    agent.loop.consumer, agent.loop.cancel_consumers = loop, [Consumed()]
    agent.admission.has_consumed = True
    return agent


def watch(
    agent: Agent, monkeypatch: pytest.MonkeyPatch, *unconsumed: str
) -> tuple[BrokerWatch, list[dict[str, str]]]:
    """A watch that always finds these queues without a consumer, and what it has told."""
    told: list[dict[str, str]] = []
    fitness = Fitness(agent)
    monkeypatch.setattr(fitness, "tell", lambda checks, failures: told.append(failures))
    watch = BrokerWatch(agent, fitness)
    watch.patience_seconds = 0.0
    monkeypatch.setattr(watch, "_look_at_queues", lambda: set(unconsumed))
    return watch, told


@pytest.mark.parametrize("name", [MAIN, CANCEL])
def test_queue_without_a_consumer_is_consumed_again_and_told(
    connected: Agent, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    looking, told = watch(connected, monkeypatch, name)
    looking.look()
    assert told == []
    looking.look()

    assert list(told[0]) == [QUEUE_CHECK]
    assert told[0][QUEUE_CHECK].startswith(f"{name}: no consumer since ")
    assert connected.loop.cancel_consumers[0].story == ["cancel", "consume"]
    assert connected.loop.consumer.task_consumer.story == ["cancel", "consume"]


def test_worker_that_is_paused_need_not_consume_its_work_but_its_cancels(
    connected: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    connected.loop.is_paused = True
    looking, told = watch(connected, monkeypatch, MAIN)
    looking.look()
    looking.look()
    assert told == [{}, {}]

    looking, told = watch(connected, monkeypatch, MAIN, CANCEL)
    looking.look()
    looking.look()
    assert told[0][QUEUE_CHECK].startswith(f"{CANCEL}: no consumer since ")
    assert connected.loop.cancel_consumers[0].story == ["cancel", "consume"]
    assert connected.loop.consumer.task_consumer.story == []


def test_worker_that_ends_consumes_nothing_again(connected: Agent) -> None:
    connected.loop.consumer.controller.blueprint.state = CLOSE
    connected.loop.consume_again()
    assert connected.loop.cancel_consumers[0].story == []
    assert connected.loop.consumer.task_consumer.story == []


def test_worker_that_stops_leaves_its_channel_to_its_loop(connected: Agent) -> None:
    connected.is_stopping = True
    connected.loop.pause()
    connected.loop.resume()
    connected.loop.consume_again()
    assert connected.loop.consumer.task_consumer.story == []
    assert connected.loop.cancel_consumers[0].story == []


def test_watch_outlives_what_it_does_not_expect(
    connected: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    looking, _ = watch(connected, monkeypatch)
    looking.calm_seconds = 0.0
    link: Any = SimpleNamespace(collect=lambda: 1 / 0)
    looking.link, looks = link, []

    def look() -> set[str]:
        looks.append(looking.link)
        if len(looks) < 3:
            raise AttributeError("a connection that is half closed")
        connected.is_stopping = True
        return set()

    monkeypatch.setattr(looking, "_look_at_queues", look)
    looking.run()
    assert looks == [link, None, None]


@pytest.fixture
def soon(connected: Agent, monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], None]]:
    """What the loop is to call soon. It keeps no order."""
    calls: list[Callable[[], None]] = []
    monkeypatch.setattr(connected.loop, "call_soon", calls.append)
    return calls


def test_both_queues_are_cancelled_and_consumed_in_one_call_of_the_loop(
    connected: Agent, soon: list[Callable[[], None]]
) -> None:
    connected.loop.consume_again()
    (call,) = soon
    call()
    assert connected.loop.cancel_consumers[0].story == ["cancel", "consume"]
    assert connected.loop.consumer.task_consumer.story == ["cancel", "consume"]


@pytest.mark.parametrize("last", ["cancel", "consume"])
def test_worker_does_what_it_was_told_last_whatever_the_loop_calls_first(
    connected: Agent, soon: list[Callable[[], None]], last: str
) -> None:
    told = [connected.loop.pause, connected.loop.resume, connected.loop.pause]
    for tell in told if last == "cancel" else told[:2]:
        tell()
    for order in itertools.permutations(soon):
        for call in order:
            call()
        assert connected.loop.consumer.task_consumer.story[-1] == last
