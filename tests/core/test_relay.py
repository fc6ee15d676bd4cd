"""What is sent soon is joined, and a dispatch that comes alone waits for no thread."""

from __future__ import annotations

import dataclasses
import json
import threading
import time
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from orchestrator.core import brokers, publisher, relay, topology
from orchestrator.core.lanes import Lane
from orchestrator.core.messages import Message, cancel, dispatch, requested
from tests.core.received import get

ID = UUID("01890000-0000-7000-8000-000000000001")
OTHER = UUID("01890000-0000-7000-8000-000000000002")


def test_hints_whose_queues_were_deleted_arrive_in_queues_that_are_declared_again(
    queues: Any,
) -> None:
    names = [spec.name for spec in (topology.requests_queue(), topology.cancel_queue(7))]
    for name in names:
        queues.queue_delete(name)
    relay.send_soon(
        [
            *requested([ID]),
            cancel(execution_id=ID, attempt=1, worker_id=7),
        ]
    )
    assert relay.flush(10)
    for name in names:
        assert str(ID) in str(get(queues, name).payload)


def test_hints_are_dropped_where_their_queues_cannot_be_declared(
    queues: Any, settings: Any
) -> None:
    for spec in topology.hot_queues():
        queues.queue_delete(spec.name)
    name = topology.completed_queue().name
    queues.queue_declare(name, durable=True, auto_delete=False, arguments={"x-max-length": 1})
    try:
        relay.send_soon(requested([ID]))
        assert relay.flush(10), "and nothing hangs or fails"
    finally:
        queues.queue_delete(name)


def test_what_is_sent_soon_is_joined_by_task(queues: Any) -> None:
    relay.send_soon(
        [
            *requested([UUID(int=1)]),
            cancel(execution_id=ID, attempt=1, worker_id=7),
            *requested([UUID(int=2)]),
        ]
    )
    assert relay.flush(10)
    merged = relay._merged([*requested([ID]), *requested([ID])])
    assert [message.kwargs["execution_ids"] for message in merged] == [[str(ID), str(ID)]]
    assert get(queues, "worker.7.cancel").payload[1]["attempt"] == 1
    told: list[str] = []
    while message := queues.basic_get(topology.requests_queue().name, no_ack=True):
        told += json.loads(message.body)[1]["execution_ids"]
    assert told == [str(UUID(int=1)), str(UUID(int=2))]


@pytest.fixture
def resting(queues: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A relay at rest, whose thread is the test. That a dispatch is published at once is shown with
    the embedded broker, for which it is not done."""
    monkeypatch.setattr(relay, "threading", SimpleNamespace(Lock=threading.Lock, Thread=Idle))
    monkeypatch.setattr(relay, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(brokers, "is_silent", lambda link: True)
    resting = relay._Relay()
    resting.put(requested([OTHER]))
    resting._send_next()
    get(queues, topology.requests_queue().name)
    return resting


class Idle:
    """A thread that does nothing."""

    def __init__(self, **_: Any) -> None: ...
    def start(self) -> None: ...


DISPATCH = dispatch([(ID, 1)], worker_id=7)


def test_dispatch_that_comes_alone_does_not_wait_for_a_thread(resting: Any, queues: Any) -> None:
    resting.put([DISPATCH])
    assert get(queues, "worker.7.executions").headers["id"] == DISPATCH.id
    resting.put(requested([ID]))  # it comes before the thread has its turn
    resting._send_next()
    assert queues.basic_get("worker.7.executions", no_ack=True) is None, "twice"
    assert str(ID) in str(get(queues, topology.requests_queue().name).payload)
    assert resting.is_sending
    assert resting.flush(0.0)


def test_only_one_dispatch_is_published_before_the_thread_has_its_turn(
    resting: Any, queues: Any
) -> None:
    resting.put([DISPATCH])
    resting.put([dispatch([(ID, 2)], worker_id=7)])
    assert get(queues, "worker.7.executions").headers["id"] == DISPATCH.id
    assert queues.basic_get("worker.7.executions", no_ack=True) is None
    resting._send_next()
    assert get(queues, "worker.7.executions").headers["id"] == f"{ID}.2"


@pytest.mark.parametrize("messages", [[DISPATCH] * 2, requested([ID])])
def test_what_nobody_waits_for_is_left_to_the_thread(
    resting: Any, queues: Any, messages: list[Message]
) -> None:
    resting.put(messages)
    assert queues.basic_get("worker.7.executions", no_ack=True) is None
    assert queues.basic_get(topology.requests_queue().name, no_ack=True) is None
    resting._send_next()
    assert resting.is_sending


def test_within_the_pause_a_dispatch_waits_for_those_that_follow(resting: Any, queues: Any) -> None:
    resting._next_at = time.monotonic() + 0.1
    resting.put([DISPATCH])
    assert queues.basic_get("worker.7.executions", no_ack=True) is None
    resting._send_next()
    assert get(queues, "worker.7.executions").headers["id"] == DISPATCH.id


@pytest.mark.parametrize("is_noticed", [True, False])
def test_dispatch_whose_connection_breaks_is_sent_on_another(
    resting: Any, queues: Any, *, is_noticed: bool
) -> None:
    if is_noticed:
        publisher._lane().link.connection.close()
    resting.put([DISPATCH])
    publisher._lane().link.connection.close()
    resting._send_next()
    assert resting.is_sending
    assert get(queues, "worker.7.executions").headers["id"] == DISPATCH.id


def test_dispatch_that_is_not_confirmed_is_not_taken_for_sent(
    resting: Any, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.MUSTER = dataclasses.replace(settings.MUSTER, publish_timeout_seconds=0.2)
    monkeypatch.setattr(Lane, "_publish", lambda lane, *_: lane.unconfirmed.update({1: 0}))
    resting.put([DISPATCH])
    resting._send_next()
    assert not resting.is_sending
    monkeypatch.undo()
    resting.put([DISPATCH])
    assert resting._posted is None, "by a connection that is known to fail"


def test_nobody_waits_for_who_publishes(
    resting: Any, queues: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker may take nothing for a while, and acceptance needs none."""
    begun, over = threading.Event(), threading.Event()
    publish = Lane._publish

    def slowly(lane: Lane, *args: Any) -> None:
        begun.set()
        over.wait(10)
        publish(lane, *args)

    monkeypatch.setattr(Lane, "_publish", slowly)
    first = threading.Thread(target=resting.put, args=([DISPATCH],))
    first.start()
    assert begun.wait(5)
    second = dispatch([(ID, 2)], worker_id=7)
    others = [threading.Thread(target=resting.put, args=([second],)) for _ in range(2)]
    for other in others:
        other.start()
    for other in others:
        other.join(5)
        assert not other.is_alive()
    over.set()
    first.join(5)
    resting._send_next()
    names = [get(queues, "worker.7.executions").headers["id"] for _ in range(3)]
    assert names == [DISPATCH.id, second.id, second.id]


def test_relay_waits_for_who_publishes_on_its_connection(resting: Any, queues: Any) -> None:
    resting.put(requested([ID]))
    with resting._using:
        thread = threading.Thread(target=resting._send_next)
        thread.start()
        thread.join(0.2)
        assert queues.basic_get(topology.requests_queue().name, no_ack=True) is None
    thread.join(5)
    assert str(ID) in str(get(queues, topology.requests_queue().name).payload)
