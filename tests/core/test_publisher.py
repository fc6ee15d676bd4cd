"""Messages are Celery's own, and `send` returns only what the broker has said of them."""

from __future__ import annotations

import dataclasses
import socket
import threading
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from kombu import Consumer
from kombu.message import Message as Received

from orchestrator.automation import messages as of_rules
from orchestrator.bulk import messages as of_bulk
from orchestrator.core import brokers, lanes, publisher, topology
from orchestrator.core.lanes import Lane, RawMessage
from orchestrator.core.messages import (
    Message,
    cancel,
    completed,
    dispatch,
    requested,
    status_changed,
)
from orchestrator.inquiries import messages as of_inquiries
from orchestrator.workflows import messages as of_tasks
from settings.celery import app
from tests.core.received import get

ID = UUID("01890000-0000-7000-8000-000000000001")
OTHER = UUID("01890000-0000-7000-8000-000000000002")


EVERY_MESSAGE: list[tuple[Message, str, str, dict[str, Any]]] = [
    (
        requested([ID])[0],
        "muster.execution.requests.queue",
        "muster.schedule",
        {"execution_ids": [str(ID)]},
    ),
    (
        completed([ID])[0],
        "muster.execution.completed.queue",
        "muster.completed",
        {"execution_ids": [str(ID)]},
    ),
    (
        status_changed([ID])[0],
        "muster.execution.status.queue",
        "muster.status_changed",
        {"execution_ids": [str(ID)]},
    ),
    (
        dispatch([(ID, 3)], worker_id=7, ttl_ms=60_000),
        "worker.7.executions",
        "muster.run",
        {"execution_id": str(ID), "attempt": 3},
    ),
    (
        dispatch([(ID, 3), (OTHER, 1)], worker_id=7),
        "worker.7.executions",
        "muster.run",
        {"attempts": [[str(ID), 3], [str(OTHER), 1]]},
    ),
    (
        cancel(execution_id=ID, attempt=3, worker_id=7),
        "worker.7.cancel",
        "muster.cancel",
        {"execution_id": str(ID), "attempt": 3},
    ),
    (
        of_tasks.requested([ID])[0],
        "muster.tasks.queue",
        "muster.advance",
        {"task_ids": [str(ID)]},
    ),
    (
        of_rules.recorded([ID])[0],
        "muster.events.queue",
        "muster.match",
        {"event_ids": [str(ID)]},
    ),
    (
        of_rules.created([ID])[0],
        "muster.enforcements.queue",
        "muster.enforce",
        {"enforcement_ids": [str(ID)]},
    ),
    (
        of_inquiries.ended([ID])[0],
        "muster.inquiry.responses.queue",
        "muster.answered",
        {"inquiry_ids": [str(ID)]},
    ),
    (
        of_bulk.ordered(ID)[0],
        "muster.bulk.orders.queue",
        "muster.bulk",
        {"order_ids": [str(ID)]},
    ),
]
"""Each message, where it arrives, and what Celery sees in it."""


def test_every_queue_that_services_fill_has_its_message_above() -> None:
    specs = [*topology.hot_queues(), *topology.worker_queues(7)]
    assert {queue for _, queue, _, _ in EVERY_MESSAGE} == {spec.name for spec in specs}


@pytest.mark.parametrize(
    ("message", "queue", "task", "kwargs"),
    EVERY_MESSAGE,
    ids=[f"{task} {message.routing_key}" for message, _, task, _ in EVERY_MESSAGE],
)
def test_stock_celery_understands_every_message(
    queues: Any, message: Message, queue: str, task: str, kwargs: dict[str, Any]
) -> None:
    assert publisher.send([message]) == []
    received = get(queues, queue)
    assert received.payload == [[], kwargs, {}], "kombu decodes it by its content type"
    assert received.headers["task"] == task
    assert received.properties["delivery_mode"] == lanes.PERSISTENT

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


def test_message_that_no_queue_wants_comes_back_and_the_others_arrive(queues: Any) -> None:
    there = dispatch([(ID, 1)], worker_id=7)
    nowhere = dispatch([(ID, 9)], worker_id=8)
    again = dispatch([(ID, 2)], worker_id=7)
    assert publisher.send([there, nowhere, again]) == [nowhere] == publisher.send([nowhere])
    assert get(queues, "worker.7.executions").headers["id"] == there.id
    assert get(queues, "worker.7.executions").headers["id"] == again.id


def test_exchange_that_was_deleted_is_there_again_for_the_second_try(queues: Any) -> None:
    message = dispatch([(ID, 1)], worker_id=7)
    assert publisher.send([message]) == []
    get(queues, "worker.7.executions")
    queues.exchange_delete(topology.executions_exchange())
    assert publisher.send([message]) == [message], "its bindings went with it"
    publisher.make_whole([message.routing_key])
    assert publisher.send([message]) == []
    assert get(queues, "worker.7.executions").headers["id"] == message.id


def test_sending_nothing_needs_no_broker(settings: Any) -> None:
    settings.BROKER_URL = "amqp://127.0.0.1:1//"
    assert publisher.send([]) == []


def test_unreachable_broker_has_one_name(settings: Any) -> None:
    publisher.drop_lane()
    brokers.errors.cache_clear()
    settings.BROKER_URL = "amqp://127.0.0.1:1//"
    try:
        with pytest.raises(publisher.BrokerUnavailable, match="1 messages not sent"):
            publisher.send([cancel(execution_id=ID, attempt=1, worker_id=7)])
    finally:
        publisher.drop_lane()
        brokers.errors.cache_clear()


def test_message_of_which_the_broker_says_nothing_is_not_taken_for_sent(
    queues: Any, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.MUSTER = dataclasses.replace(settings.MUSTER, publish_timeout_seconds=0.2)
    monkeypatch.setattr(Lane, "_publish", lambda lane, *_: lane.unconfirmed.update({1: 0}))
    with pytest.raises(publisher.BrokerUnavailable):
        publisher.send(requested([ID]))


def test_message_that_the_broker_refuses_is_not_taken_for_sent(
    queues: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(lane: Lane, position: int, message: RawMessage) -> None:
        lane.last_tag += 1
        lane.unconfirmed[lane.last_tag] = position
        lane._on_nack(lane.last_tag, multiple=False)

    monkeypatch.setattr(Lane, "_publish", refused)
    with pytest.raises(publisher.BrokerUnavailable, match="refused"):
        publisher.send(requested([ID]))


def test_connection_that_broke_while_idle_is_replaced(queues: Any) -> None:
    message = cancel(execution_id=ID, attempt=1, worker_id=7)
    publisher.send([message])
    publisher._lane().link.connection.close()
    assert publisher.send([message]) == []
    for _ in range(2):
        assert get(queues, "worker.7.cancel").headers["id"] == message.id


def test_each_thread_has_a_connection_of_its_own(queues: Any) -> None:
    messages = [cancel(execution_id=ID, attempt=n, worker_id=7) for n in range(40)]

    def send(part: list[Message]) -> None:
        assert publisher.send(part) == []
        publisher.drop_lane()

    threads = [threading.Thread(target=send, args=(messages[n::4],)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    ids = {get(queues, "worker.7.cancel").headers["id"] for _ in messages}
    assert ids == {message.id for message in messages}


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
    publisher.send(requested([ID]))
    with brokers.connection() as link:
        consumer = Consumer(
            link.channel(),
            queues=[topology.requests_queue().queue()],
            callbacks=[lambda body, message: got.append(body)],
            accept=["json"],
        )
        with consumer:
            link.drain_events(timeout=10)
    assert got == [[[], {"execution_ids": [str(ID)]}, {}]]
