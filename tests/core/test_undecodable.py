"""A message that py-amqp cannot decode breaks no connection, and is a dead letter like others."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from struct import pack
from typing import Any

import pytest
from amqp.basic_message import Message
from amqp.spec import Basic
from kombu import Connection
from kombu.message import Message as KombuMessage

from orchestrator.core import brokers, dead_letters, messages, topology
from orchestrator.core.brokers import UNDECODED
from orchestrator.core.dead_letters import Drained
from orchestrator.core.models import DLQEntry
from tests.factories import NOW
from tests.undecodable import BYTES_AS_NAME, TEXT, UNDECODABLE, publish

ROUTING_KEY = b"\xff.\xfe"


@pytest.fixture
def link(rabbitmq_url: str, settings: Any) -> Iterator[Connection]:
    settings.GATE_BROKERS = {"gates": rabbitmq_url}
    with brokers.connection("gates") as link:
        yield link


def read(content: bytes) -> Any:
    """The properties of a message with these bytes."""
    message: Any = Message()
    message.inbound_header(pack(">HxxQ", Basic.CLASS_ID, 0) + content)
    return message.properties


@pytest.mark.parametrize("content", UNDECODABLE.values(), ids=UNDECODABLE)
def test_properties_that_cannot_be_decoded_are_left_out_with_the_reason(content: bytes) -> None:
    assert read(content)[UNDECODED]


def test_what_can_be_decoded_beside_them_is_kept() -> None:
    found = read(TEXT)
    assert found.pop(UNDECODED).startswith("'utf-8' codec can't decode")
    assert found == {"application_headers": {"x-a": True}}


def test_consumer_gets_all_messages_and_keeps_its_connection(link: Connection) -> None:
    channel: Any = link.default_channel
    queue = f"odd.{uuid.uuid4().hex[:8]}"
    channel.queue_declare(queue, exclusive=True)
    channel.queue_bind(queue, "amq.topic", "#")
    for content in [*UNDECODABLE.values(), BYTES_AS_NAME]:
        publish(channel, content, to=queue, body=b"odd")
    publish(channel, pack(">H", 0), to=ROUTING_KEY, body=b"odd", exchange="amq.topic")
    publish(channel, pack(">H", 0), to=queue, body=b"last")
    bodies: list[bytes] = []
    channel.basic_consume(queue, callback=lambda message: bodies.append(message.body), no_ack=True)
    while b"last" not in bodies:
        link.drain_events(timeout=5)
    assert len(bodies) == len(UNDECODABLE) + 3


def test_dead_letters_that_cannot_be_decoded_are_kept_and_drained_once(
    db: None, link: Connection
) -> None:
    channel: Any = link.default_channel
    topology.declare_dead_letters(channel)
    channel.queue_purge(topology.dead_letter_queue().name)
    odd = [*UNDECODABLE.values(), BYTES_AS_NAME]
    for number, content in enumerate(odd):
        body, exchange = str(number).encode(), topology.dead_letter_exchange()
        publish(channel, content, to=ROUTING_KEY, body=body, exchange=exchange)
    drained = Drained()
    while drained.unreadable < len(odd):
        drained += dead_letters.drain(broker="gates")
    assert drained == Drained(unreadable=len(odd))
    assert DLQEntry.objects.count() == len(odd)
    assert dead_letters.drain(broker="gates") == Drained()


def test_dispatch_that_cannot_be_decoded_ends_nothing() -> None:
    body: Any = b'[[], {"execution_id": "57a9d19e-0000-7000-8000-000000000000", "attempt": 1}, {}]'
    headers, properties = {"task": messages.RUN}, {UNDECODED: "why"}
    letter = dead_letters.read(KombuMessage(body=body, headers=headers, properties=properties))
    assert "it cannot be decoded: why" in letter.problem
    assert letter.attempts == []


def test_header_of_tables_in_tables_is_kept_to_a_depth(db: None) -> None:
    deep: Any = None
    for _ in range(500):
        deep = [deep]
    letter = dead_letters.read(KombuMessage(body="x", headers={"x-deep": deep}))
    assert dead_letters.settle([letter], now=NOW) == Drained(unreadable=1)
