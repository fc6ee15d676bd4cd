"""A dispatch message becomes an attempt, or as many as it lists."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from celery import signals
from celery.worker import state
from kombu.message import Message as Received

from orchestrator.core import messages
from settings.celery import app
from workers.agent import Agent
from workers.attempts import Attempt
from workers.strategies import run_claimed

FIRST, SECOND, THIRD = (UUID(int=n) for n in (1, 2, 3))


class Consumer:
    """The consumer of a worker, and what became of its messages."""

    def __init__(self, agent: Agent) -> None:
        self.acknowledged: list[str] = []
        self.rejected: list[str] = []
        self.events: list[tuple[str, str]] = []
        app.loader.import_default_modules()
        task = app.tasks[messages.RUN]
        self.controller = SimpleNamespace(muster_agent=agent)
        self.hostname, self.connection_errors, self.pool = "w1", (), None
        self.event_dispatcher = SimpleNamespace(enabled=True, send=self._note)
        agent.loop.attach = lambda consumer: None  # type: ignore[method-assign]
        self.strategy = run_claimed(task, app, self)

    def _note(self, kind: str, uuid: str, **fields: Any) -> None:
        self.events.append((kind, uuid))

    def deliver(self, message: messages.Message) -> None:
        received = Received(
            body=message.body().decode(),
            headers=message.headers(),
            content_type="application/json",
            content_encoding="utf-8",
            delivery_info={},
            properties=message.properties(),
        )
        received.reject_log_error = (  # type: ignore[method-assign]
            lambda *_, **__: self.rejected.append(message.id)
        )
        self.strategy(
            received, None, lambda *_: self.acknowledged.append(message.id), lambda *_: None, []
        )


@pytest.fixture
def consumer(agent: Agent) -> Consumer:
    return Consumer(agent)


def offered(agent: Agent) -> list[Attempt]:
    asked: Any = agent.claimer.asked.queue
    return [attempt for batch in (*asked, agent.desk.waiting) for attempt in batch]


def test_each_attempt_of_a_list_is_a_request_of_its_own(agent: Agent, consumer: Consumer) -> None:
    received: list[str] = []
    keys = [(FIRST, 1), (SECOND, 4), (THIRD, 1)]

    def note(request: Attempt, **_: Any) -> None:
        received.append(request.id)

    signals.task_received.connect(note)
    try:
        consumer.deliver(messages.dispatch(keys, worker_id=1))
    finally:
        signals.task_received.disconnect(note)

    attempts = offered(agent)
    names = [messages.name_of(key) for key in keys]
    assert [attempt.key for attempt in attempts] == keys
    assert [attempt.id for attempt in attempts] == names == received
    assert consumer.events == [("task-received", name) for name in names]
    for (id, number), attempt in zip(keys, attempts, strict=True):
        shown = attempt.info()
        assert shown["id"] == f"{id}.{number}"
        assert shown["kwargs"] == {"execution_id": str(id), "attempt": number}
        assert state.requests[attempt.id] is attempt
        assert attempt in state.reserved_requests


def test_list_is_acknowledged_once_and_not_before_its_last_attempt(
    agent: Agent, consumer: Consumer
) -> None:
    message = messages.dispatch([(FIRST, 1), (SECOND, 1), (THIRD, 1)], worker_id=1)
    consumer.deliver(message)
    last, *others = reversed(offered(agent))
    for attempt in others:
        attempt.acknowledge_message()
        attempt.acknowledge_message()
        assert consumer.acknowledged == []
    last.acknowledge_message()
    last.acknowledge_message()
    assert consumer.acknowledged == [message.id]


def test_dispatch_of_one_attempt_is_as_it_was_sent(agent: Agent, consumer: Consumer) -> None:
    message = messages.dispatch([(FIRST, 2)], worker_id=1)
    consumer.deliver(message)
    (attempt,) = offered(agent)
    assert (attempt.key, attempt.id) == ((FIRST, 2), message.id)
    attempt.acknowledge_message()
    assert consumer.acknowledged == [message.id]


def test_celery_acknowledges_nothing_as_an_action_begins(agent: Agent, consumer: Consumer) -> None:
    """It begins in a thread of the pool, and the broker's channel is the loop's."""
    consumer.deliver(messages.dispatch([(FIRST, 1)], worker_id=1))
    (attempt,) = offered(agent)
    attempt.on_accepted(1, 0.0)
    assert consumer.acknowledged == []


def test_list_with_one_unreadable_attempt_is_rejected_as_a_whole(
    agent: Agent, consumer: Consumer
) -> None:
    good = messages.dispatch([(FIRST, 1), (SECOND, 1)], worker_id=1)
    good.kwargs["attempts"][1] = ["odd", 1]
    consumer.deliver(good)
    assert consumer.rejected == [good.id]
    assert offered(agent) == []
