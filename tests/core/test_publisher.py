"""Messages are Celery's own, and `send` returns only what the broker has said of them."""

from __future__ import annotations

import dataclasses
import json
import socket
import threading
import time
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from kombu import Consumer
from kombu.message import Message as Received

from orchestrator.core import brokers, publisher, topology
from orchestrator.core.lanes import Lane, RawMessage
from orchestrator.core.publisher import Message
from orchestrator.workflows import messages
from settings.celery import app

ID = UUID("01890000-0000-7000-8000-000000000001")
OTHER = UUID("01890000-0000-7000-8000-000000000002")
SHARED = [topology.requests_queue, topology.completed_queue]


@pytest.fixture
def queues(channel: Any) -> Any:
    """A channel of a broker that has every queue."""
    topology.declare(channel, [*topology.shared_queues(), *topology.worker_queues(7)])
    return channel


def get(channel: Any, queue: str) -> Any:
    message = channel.basic_get(queue, no_ack=True)
    assert message is not None, f"nothing in {queue}"
    return channel.message_to_python(message)


@pytest.mark.parametrize(
    ("message", "queue", "task", "kwargs"),
    [
        (
            publisher.requested([ID])[0],
            "muster.execution.requests.queue",
            "muster.schedule",
            {"execution_ids": [str(ID)]},
        ),
        (
            publisher.completed([ID])[0],
            "muster.execution.completed.queue",
            "muster.completed",
            {"execution_ids": [str(ID)]},
        ),
        (
            publisher.dispatch([(ID, 3)], worker_id=7, ttl_ms=60_000),
            "worker.7.executions",
            "muster.run",
            {"execution_id": str(ID), "attempt": 3},
        ),
        (
            publisher.dispatch([(ID, 3), (OTHER, 1)], worker_id=7),
            "worker.7.executions",
            "muster.run",
            {"attempts": [[str(ID), 3], [str(OTHER), 1]]},
        ),
        (
            publisher.cancel(execution_id=ID, attempt=3, worker_id=7),
            "worker.7.cancel",
            "muster.cancel",
            {"execution_id": str(ID), "attempt": 3},
        ),
        (
            messages.requested([ID])[0],
            "muster.tasks.queue",
            "muster.advance",
            {"task_ids": [str(ID)]},
        ),
    ],
    ids=["schedule", "completed", "run", "run many", "cancel", "advance"],
)
def test_stock_celery_understands_every_message(
    queues: Any, message: Message, queue: str, task: str, kwargs: dict[str, Any]
) -> None:
    assert publisher.send([message]) == []
    received = get(queues, queue)
    assert received.payload == [[], kwargs, {}], "kombu decodes it by its content type"
    assert received.headers["task"] == task
    assert received.properties["delivery_mode"] == publisher.PERSISTENT

    class Strategy:
        """What Celery's consumer reads before it makes a task of a message."""

        def __init__(self, received: Received) -> None:
            from celery.worker.request import Request

            app.loader.import_default_modules()
            self.request = Request(received, app=app, task=app.tasks[task], decoded=False)

    request = Strategy(received).request
    assert (request.name, request.id) == (task, message.id)
    assert (request.args, request.kwargs) == ([], kwargs)
    assert request.expires is None


def test_task_of_a_dispatch_is_named_after_its_attempt() -> None:
    message = publisher.dispatch([(ID, 3)], worker_id=7)
    assert message.id == f"{ID}.3"


def test_attempts_that_a_dispatch_names_are_read_as_they_were_written() -> None:
    for attempts in ([(ID, 3)], [(ID, 3), (OTHER, 1)], [(UUID(int=n), n + 1) for n in range(32)]):
        message = publisher.dispatch(attempts, worker_id=7)
        assert publisher.dispatched(json.loads(message.body())[1]) == attempts
        assert len(message.headers()["kwargsrepr"]) < 120, "a header, which every tool shows"


@pytest.mark.parametrize(
    "kwargs",
    [{}, {"attempts": []}, {"attempts": [["x", 1]]}, {"attempts": [[str(UUID(int=1))]]},
     {"attempts": [[str(UUID(int=1)), None]]}, {"attempts": 7}, {"execution_id": str(UUID(int=1))},
     {"attempts": [[str(ID), 1], [str(ID), 2**31]]}, {"execution_id": str(ID), "attempt": 0},
     {"execution_id": str(ID), "attempt": float("inf")}],
    ids=str,
)  # fmt: skip
def test_dispatch_that_names_no_attempt_is_unreadable(kwargs: dict[str, Any]) -> None:
    with pytest.raises(publisher.UNREADABLE):
        publisher.dispatched(kwargs)


def test_ttl_travels_as_milliseconds_in_text() -> None:
    message = publisher.dispatch([(ID, 1)], worker_id=7, ttl_ms=1_500)
    assert message.properties()["expiration"] == "1500"
    assert "expiration" not in publisher.dispatch([(ID, 1)], worker_id=7).properties()


def test_ids_are_spread_over_as_many_messages_as_batches_need() -> None:
    ids = [UUID(int=n) for n in range(501)]
    messages = publisher.requested(ids)
    assert [len(message.kwargs["execution_ids"]) for message in messages] == [250, 250, 1]
    assert publisher.requested([]) == []


def test_message_that_no_queue_wants_comes_back_and_the_others_arrive(queues: Any) -> None:
    there = publisher.dispatch([(ID, 1)], worker_id=7)
    nowhere = publisher.dispatch([(ID, 9)], worker_id=8)
    again = publisher.dispatch([(ID, 2)], worker_id=7)
    assert publisher.send([there, nowhere, again]) == [nowhere] == publisher.send([nowhere])
    assert get(queues, "worker.7.executions").headers["id"] == there.id
    assert get(queues, "worker.7.executions").headers["id"] == again.id


def test_exchange_that_was_deleted_is_there_again_for_the_second_try(queues: Any) -> None:
    message = publisher.dispatch([(ID, 1)], worker_id=7)
    assert publisher.send([message]) == []
    get(queues, "worker.7.executions")
    queues.exchange_delete(topology.executions_exchange())
    assert publisher.send([message]) == [message], "its bindings went with it"
    publisher.make_whole([message.routing_key])
    assert publisher.send([message]) == []
    assert get(queues, "worker.7.executions").headers["id"] == message.id


def test_hints_whose_queues_were_deleted_arrive_in_queues_that_are_declared_again(
    queues: Any,
) -> None:
    names = [spec.name for spec in (topology.requests_queue(), topology.cancel_queue(7))]
    for name in names:
        queues.queue_delete(name)
    publisher.send_soon(
        [
            *publisher.requested([ID]),
            publisher.cancel(execution_id=ID, attempt=1, worker_id=7),
        ]
    )
    assert publisher.flush(10)
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
        publisher.send_soon(publisher.requested([ID]))
        assert publisher.flush(10), "and nothing hangs or fails"
    finally:
        queues.queue_delete(name)


def test_sending_nothing_needs_no_broker(settings: Any) -> None:
    settings.BROKER_URL = "amqp://127.0.0.1:1//"
    assert publisher.send([]) == []


def test_unreachable_broker_has_one_name(settings: Any) -> None:
    publisher._drop_lane()
    publisher.errors.cache_clear()
    settings.BROKER_URL = "amqp://127.0.0.1:1//"
    try:
        with pytest.raises(publisher.BrokerUnavailable, match="1 messages not sent"):
            publisher.send([publisher.cancel(execution_id=ID, attempt=1, worker_id=7)])
    finally:
        publisher._drop_lane()
        publisher.errors.cache_clear()


def test_message_of_which_the_broker_says_nothing_is_not_taken_for_sent(
    queues: Any, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.MUSTER = dataclasses.replace(settings.MUSTER, publish_timeout_seconds=0.2)
    monkeypatch.setattr(Lane, "_publish", lambda lane, *_: lane.unconfirmed.update({1: 0}))
    with pytest.raises(publisher.BrokerUnavailable):
        publisher.send(publisher.requested([ID]))


def test_message_that_the_broker_refuses_is_not_taken_for_sent(
    queues: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(lane: Lane, position: int, message: RawMessage) -> None:
        lane.last_tag += 1
        lane.unconfirmed[lane.last_tag] = position
        lane._on_nack(lane.last_tag, multiple=False)

    monkeypatch.setattr(Lane, "_publish", refused)
    with pytest.raises(publisher.BrokerUnavailable, match="refused"):
        publisher.send(publisher.requested([ID]))


def test_connection_that_broke_while_idle_is_replaced(queues: Any) -> None:
    message = publisher.cancel(execution_id=ID, attempt=1, worker_id=7)
    publisher.send([message])
    publisher._lane().link.connection.close()
    assert publisher.send([message]) == []
    for _ in range(2):
        assert get(queues, "worker.7.cancel").headers["id"] == message.id


def test_each_thread_has_a_connection_of_its_own(queues: Any) -> None:
    messages = [publisher.cancel(execution_id=ID, attempt=n, worker_id=7) for n in range(40)]

    def send(part: list[Message]) -> None:
        assert publisher.send(part) == []
        publisher._drop_lane()

    threads = [threading.Thread(target=send, args=(messages[n::4],)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    ids = {get(queues, "worker.7.cancel").headers["id"] for _ in messages}
    assert ids == {message.id for message in messages}


def test_what_is_sent_soon_is_joined_by_task(queues: Any) -> None:
    publisher.send_soon(
        [
            *publisher.requested([UUID(int=1)]),
            publisher.cancel(execution_id=ID, attempt=1, worker_id=7),
            *publisher.requested([UUID(int=2)]),
        ]
    )
    assert publisher.flush(10)
    merged = publisher._merged([*publisher.requested([ID]), *publisher.requested([ID])])
    assert [message.kwargs["execution_ids"] for message in merged] == [[str(ID), str(ID)]]
    assert get(queues, "worker.7.cancel").payload[1]["attempt"] == 1
    told: list[str] = []
    while message := queues.basic_get(topology.requests_queue().name, no_ack=True):
        told += json.loads(message.body)[1]["execution_ids"]
    assert told == [str(UUID(int=1)), str(UUID(int=2))]


@pytest.fixture
def relay(queues: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A relay at rest, whose thread is the test. That a dispatch is published at once is shown with
    the embedded broker, for which it is not done."""
    monkeypatch.setattr(publisher, "threading", SimpleNamespace(Lock=threading.Lock, Thread=Idle))
    monkeypatch.setattr(publisher, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(brokers, "is_silent", lambda link: True)
    relay = publisher._Relay()
    relay.put(publisher.requested([OTHER]))
    relay._send_next()
    get(queues, topology.requests_queue().name)
    return relay


class Idle:
    """A thread that does nothing."""

    def __init__(self, **_: Any) -> None: ...
    def start(self) -> None: ...


DISPATCH = publisher.dispatch([(ID, 1)], worker_id=7)


def test_dispatch_that_comes_alone_does_not_wait_for_a_thread(relay: Any, queues: Any) -> None:
    relay.put([DISPATCH])
    assert get(queues, "worker.7.executions").headers["id"] == DISPATCH.id
    relay.put(publisher.requested([ID]))  # it comes before the thread has its turn
    relay._send_next()
    assert queues.basic_get("worker.7.executions", no_ack=True) is None, "twice"
    assert str(ID) in str(get(queues, topology.requests_queue().name).payload)
    assert relay.is_sending
    assert relay.flush(0.0)


def test_only_one_dispatch_is_published_before_the_thread_has_its_turn(
    relay: Any, queues: Any
) -> None:
    relay.put([DISPATCH])
    relay.put([publisher.dispatch([(ID, 2)], worker_id=7)])
    assert get(queues, "worker.7.executions").headers["id"] == DISPATCH.id
    assert queues.basic_get("worker.7.executions", no_ack=True) is None
    relay._send_next()
    assert get(queues, "worker.7.executions").headers["id"] == f"{ID}.2"


@pytest.mark.parametrize("messages", [[DISPATCH] * 2, publisher.requested([ID])])
def test_what_nobody_waits_for_is_left_to_the_thread(
    relay: Any, queues: Any, messages: list[Message]
) -> None:
    relay.put(messages)
    assert queues.basic_get("worker.7.executions", no_ack=True) is None
    assert queues.basic_get(topology.requests_queue().name, no_ack=True) is None
    relay._send_next()
    assert relay.is_sending


def test_within_the_pause_a_dispatch_waits_for_those_that_follow(relay: Any, queues: Any) -> None:
    relay._next_at = time.monotonic() + 0.1
    relay.put([DISPATCH])
    assert queues.basic_get("worker.7.executions", no_ack=True) is None
    relay._send_next()
    assert get(queues, "worker.7.executions").headers["id"] == DISPATCH.id


@pytest.mark.parametrize("is_noticed", [True, False])
def test_dispatch_whose_connection_breaks_is_sent_on_another(
    relay: Any, queues: Any, *, is_noticed: bool
) -> None:
    if is_noticed:
        publisher._lane().link.connection.close()
    relay.put([DISPATCH])
    publisher._lane().link.connection.close()
    relay._send_next()
    assert relay.is_sending
    assert get(queues, "worker.7.executions").headers["id"] == DISPATCH.id


def test_dispatch_that_is_not_confirmed_is_not_taken_for_sent(
    relay: Any, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.MUSTER = dataclasses.replace(settings.MUSTER, publish_timeout_seconds=0.2)
    monkeypatch.setattr(Lane, "_publish", lambda lane, *_: lane.unconfirmed.update({1: 0}))
    relay.put([DISPATCH])
    relay._send_next()
    assert not relay.is_sending
    monkeypatch.undo()
    relay.put([DISPATCH])
    assert relay._posted is None, "by a connection that is known to fail"


def test_nobody_waits_for_who_publishes(
    relay: Any, queues: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker may take nothing for a while, and acceptance needs none."""
    begun, over = threading.Event(), threading.Event()
    publish = Lane._publish

    def slowly(lane: Lane, *args: Any) -> None:
        begun.set()
        over.wait(10)
        publish(lane, *args)

    monkeypatch.setattr(Lane, "_publish", slowly)
    first = threading.Thread(target=relay.put, args=([DISPATCH],))
    first.start()
    assert begun.wait(5)
    second = publisher.dispatch([(ID, 2)], worker_id=7)
    others = [threading.Thread(target=relay.put, args=([second],)) for _ in range(2)]
    for other in others:
        other.start()
    for other in others:
        other.join(5)
        assert not other.is_alive()
    over.set()
    first.join(5)
    relay._send_next()
    names = [get(queues, "worker.7.executions").headers["id"] for _ in range(3)]
    assert names == [DISPATCH.id, second.id, second.id]


def test_relay_waits_for_who_publishes_on_its_connection(relay: Any, queues: Any) -> None:
    relay.put(publisher.requested([ID]))
    with relay._using:
        thread = threading.Thread(target=relay._send_next)
        thread.start()
        thread.join(0.2)
        assert queues.basic_get(topology.requests_queue().name, no_ack=True) is None
    thread.join(5)
    assert str(ID) in str(get(queues, topology.requests_queue().name).payload)


def test_broker_is_silent_until_something_has_come() -> None:
    ours, theirs = socket.socketpair()
    link: Any = SimpleNamespace(connection=SimpleNamespace(sock=ours))
    with theirs:
        with ours:
            assert brokers.is_silent(link)
            theirs.send(b"half a frame")
            assert not brokers.is_silent(link)
        assert not brokers.is_silent(link), "it is closed"


def test_embedded_broker_is_never_silent(queues: Any) -> None:
    """To publish is to commit, and another process may hold the file."""
    assert not brokers.is_silent(publisher._lane().link)


def test_published_messages_reach_a_kombu_consumer(queues: Any) -> None:
    got: list[Any] = []
    publisher.send(publisher.requested([ID]))
    with publisher.connection() as link:
        consumer = Consumer(
            link.channel(),
            queues=[topology.requests_queue().queue()],
            callbacks=[lambda body, message: got.append(body)],
            accept=["json"],
        )
        with consumer:
            link.drain_events(timeout=10)
    assert got == [[[], {"execution_ids": [str(ID)]}, {}]]
