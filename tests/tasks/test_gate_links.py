"""What a keeper hears: deliveries of gates, and ends of executions through a queue of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from kombu import Connection

from orchestrator.core import brokers, topology
from orchestrator.core.messages import EXECUTION_IDS
from orchestrator.queues.gates import headers, intake
from orchestrator.queues.gates.judging import Does
from orchestrator.queues.models import Gate, WorkQueue
from tasks.gate_links import Input, News, drain, wait
from tests import undecodable
from tests.factories import NOW, make_action
from tests.queues.gates import messages


@pytest.fixture
def link(channel: Any) -> Iterator[Connection]:
    topology.declare_exchanges(channel)
    with brokers.connection() as link:
        yield link


def tell(channel: Any, execution: object) -> None:
    body = json.dumps([[], {EXECUTION_IDS: [str(execution)]}, {}])
    message = channel.prepare_message(body)
    channel.basic_publish(
        message, exchange=topology.executions_exchange(), routing_key=topology.COMPLETED
    )


def test_news_has_one_queue_however_often_it_is_opened(link: Connection) -> None:
    news = News("keeper", link=link)
    news.open()
    first = (news.channel, news.queue)
    for _ in range(3):
        news.open()
    assert (news.channel, news.queue) == first


def test_news_is_heard_again_after_its_queue_was_deleted(link: Connection, channel: Any) -> None:
    news = News("keeper", link=link)
    news.open()
    tell(channel, early := uuid4())
    drain(link)
    assert news.taken() == {early}
    other: Any = link.channel()
    other.queue_delete(news.queue)
    drain(link)
    assert news.is_cancelled
    news.open()
    tell(channel, late := uuid4())
    drain(link)
    assert news.taken() == {late}


@pytest.fixture
def gate(db: None, rabbitmq_url: str, settings: Any) -> Iterator[Gate]:
    """A gate in a RabbitMQ."""
    settings.GATE_BROKERS = {"gates": rabbitmq_url}
    queue = WorkQueue.objects.create(name="orders", created_at=NOW, updated_at=NOW)
    gate = Gate.objects.create(
        queue=queue,
        broker="gates",
        input_queue=f"orders.{uuid4().hex[:8]}",
        queue_type="classic",
        classifiers={"Echo": {"action": make_action(idempotent=True).ref}},
    )
    yield gate
    with brokers.connection("gates") as link:
        channel: Any = link.default_channel
        channel.queue_delete(gate.input_queue)


def test_message_that_cannot_be_decoded_is_refused_and_stops_no_other(gate: Gate) -> None:
    with brokers.connection("gates") as link:
        opened = Input(link, gate)
        for number, content in enumerate(undecodable.UNDECODABLE.values()):
            body = messages.body(f"odd {number}")
            undecodable.publish(opened.channel, content, to=gate.input_queue, body=body)
        undecodable.publish(
            opened.channel, undecodable.BYTES_AS_NAME, to=gate.input_queue, body=messages.body()
        )
        opened.consume(100)
        odd = len(undecodable.UNDECODABLE)
        for _ in range(100):
            wait([link], seconds=0.1)
            drain(link)
            if len(opened.received) > odd:
                break
    deliveries = [held.delivery for held in opened.received]
    taken = intake.take_in(deliveries, gate=gate, holder="e1", now=NOW)
    verdicts = [each.verdict for each in taken]
    assert [each.does for each in verdicts] == [*[Does.REFUSE] * odd, Does.TAKE_IN]
    assert {each.rejected for each in verdicts[:odd]} == {headers.INVALID}
    assert all(each.problems[0].pointer == "properties" for each in verdicts[:odd])
    assert deliveries[-1].headers == {"x-": True}
