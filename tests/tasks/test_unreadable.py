"""A message that Celery's consumer trips over is rejected, and the consumer goes on."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest
from celery.utils.objects import Bunch
from celery.worker.consumer.consumer import Consumer
from kombu.message import Message

from orchestrator.core import messages, topology
from settings.celery import app
from tasks import unreadable
from tests.chaos import garbage

TASKS = {
    "muster.check_timeouts",
    messages.SCHEDULE,
    messages.COMPLETED,
    "muster.advance",
    messages.RUN,
    messages.CANCEL,
}


class Channel:
    """Notes down what became of a message."""

    def __init__(self) -> None:
        self.settled: list[str] = []

    def basic_reject(self, delivery_tag: int, requeue: bool = False) -> None:
        self.settled.append("requeued" if requeue else "rejected")

    def basic_ack(self, delivery_tag: int, multiple: bool = False) -> None:
        self.settled.append("acknowledged")


@pytest.fixture
def consumer() -> Any:
    """Celery's own, as far as it handles messages; no task is known to it."""
    consumer: Any = Consumer.__new__(Consumer)
    consumer.__dict__ |= {
        "app": app,
        "strategies": {},
        "on_task_message": (),
        "connection_errors": (OSError,),
        "event_dispatcher": None,
        "_maximum_prefetch_restored": True,
        "controller": SimpleNamespace(),
        "call_soon_ack": lambda settle, *args: settle(*args),
    }
    unreadable.RejectStep(consumer).create(consumer)
    return consumer


def deliver(consumer: Any, thing: garbage.Garbage) -> list[str]:
    channel = Channel()
    consumer.create_task_handler()(
        Message(
            body=thing.body,  # type: ignore[arg-type]
            headers=dict(thing.headers),
            content_type=thing.content_type,
            content_encoding=thing.content_encoding,
            delivery_tag="1",
            delivery_info={},
            properties={},
            channel=channel,
            accept={"application/json"},
        )
    )
    return channel.settled


@pytest.mark.parametrize(
    "thing",
    [
        garbage.Garbage(b"[[], {}, {}]", {"task": "no.such.task"}),
        garbage.Garbage(b"[[], {}, {}]", {"task": ["a", "list"]}),
        garbage.Garbage(b"[" * 100_000),
        garbage.Garbage(b"not json"),
        garbage.Garbage(b"7"),
        garbage.Garbage(b"{}", {}, "application/x-python-serialize", "binary"),
    ],
    ids=["unknown task", "task is a list", "too deep", "no JSON", "a number", "a pickle"],
)
def test_odd_message_is_rejected_and_neither_kept_nor_given_back(
    consumer: Any, thing: garbage.Garbage
) -> None:
    assert deliver(consumer, thing) == ["rejected"]


def test_no_garbage_ends_the_consumer(consumer: Any) -> None:
    rng = random.Random(1)
    for _ in range(2_000):
        assert deliver(consumer, garbage.make(rng)) == ["rejected"]


def test_worker_takes_dispatches_and_nothing_else(consumer: Any) -> None:
    taken: list[str] = []
    consumer.strategies = {
        task: lambda message, *_: taken.append(message.headers["task"])
        for task in (messages.RUN, messages.SCHEDULE, messages.COMPLETED)
    }
    queues = SimpleNamespace(consume_from={"worker.7.executions": None})
    consumer.app = SimpleNamespace(amqp=SimpleNamespace(queues=queues))

    settled = [
        deliver(consumer, garbage.Garbage(b"[[], {}, {}]", garbage.celery_headers(task, "id")))
        for task in (messages.RUN, messages.SCHEDULE, messages.COMPLETED)
    ]

    assert taken == [messages.RUN]
    assert settled == [[], ["rejected"], ["rejected"]]


@pytest.mark.parametrize(
    ("queue", "taken"),
    [
        (topology.maintenance_queue(), {"muster.check_timeouts"}),
        (topology.requests_queue(), TASKS),
    ],
)
def test_what_is_taken_in_batches_is_no_task_of_other_queues(
    consumer: Any, queue: topology.QueueSpec, taken: set[str]
) -> None:
    seen: set[str] = set()
    consumer.strategies = {
        task: lambda message, *_: seen.add(message.headers["task"]) for task in TASKS
    }
    queues = SimpleNamespace(consume_from={queue.name: None})
    consumer.app = SimpleNamespace(amqp=SimpleNamespace(queues=queues))

    settled = {
        task: deliver(consumer, garbage.Garbage(b"[[], {}, {}]", garbage.celery_headers(task, "i")))
        for task in TASKS
    }

    assert seen == taken
    assert {task for task, each in settled.items() if each == ["rejected"]} == TASKS - taken


def test_fault_of_the_consumer_itself_is_not_taken_for_an_odd_message(consumer: Any) -> None:
    def handle(message: Message) -> None:
        raise OSError("the connection is gone")

    message: Any = Bunch(acknowledged=False, headers={})
    with pytest.raises(OSError, match="gone"):
        unreadable.guarded(handle, consumer)(message)
