"""Queues that refuse what is published to them when they are full: what the publisher sees.

RabbitMQ's quorum queues count late: they take one message more, or a whole batch that comes at
once (measured with 3.10.8). The embedded broker counts exactly in both types.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from amqp.exceptions import MessageNacked
from kombu import Connection

from tests.contract.conftest import Broker
from tests.waiting import wait_until

LENGTH = 3


@pytest.fixture(params=["classic", "quorum"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Publisher:
    """A channel in confirm mode, and what the broker said of each message."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        channel: Any = connection.channel()
        self.channel = channel
        self.last = 0
        self.unconfirmed: list[int] = []
        self.said: dict[int, str] = {}
        self.returned: list[int] = []
        channel.confirm_select()
        channel.events["basic_ack"].add(lambda tag, many: self._note("taken", tag, many))
        channel.events["basic_nack"].add(lambda tag, many: self._note("refused", tag, many))
        channel.events["basic_return"].add(lambda *_: self.returned.append(self.last))

    def _note(self, what: str, tag: int, many: bool) -> None:
        for each in [t for t in self.unconfirmed if t == tag or (many and t <= tag)]:
            self.unconfirmed.remove(each)
            self.said[each] = what

    def publish(self, body: str, routing_key: str, exchange: str = "", **options: Any) -> str:
        """Publish one message; returns what the broker says of it."""
        self.last += 1
        self.unconfirmed.append(self.last)
        message = self.channel.prepare_message(body.encode())
        self.channel.basic_publish(message, exchange, routing_key, **options)

        def is_said() -> bool:
            with contextlib.suppress(TimeoutError):
                self.connection.drain_events(timeout=0.05)
            return self.last in self.said

        wait_until(is_said, "the message was not confirmed")
        return self.said[self.last]


@pytest.fixture
def publisher(broker: Broker) -> Iterator[Publisher]:
    with Connection(broker.url) as connection:
        yield Publisher(connection)


def is_exact(broker: Broker, kind: str) -> bool:
    return kind == "classic" or broker.url.startswith("sqlitemq")


def rejecting(broker: Broker, kind: str, length: int = LENGTH, **arguments: Any) -> str:
    return broker.queue(
        x_queue_type=kind, x_max_length=length, x_overflow="reject-publish", **arguments
    )


def fill(publisher: Publisher, queue: str) -> int:
    """Publish until the queue refuses; returns how many it took."""
    taken = 0
    while publisher.publish(str(taken), queue) == "taken":
        taken += 1
        assert taken < 100, "it never refuses"
    return taken


def test_full_queue_refuses_and_keeps_what_it_has(
    broker: Broker, publisher: Publisher, kind: str
) -> None:
    queue = rejecting(broker, kind)
    taken = fill(publisher, queue)
    assert taken == LENGTH if is_exact(broker, kind) else taken in (LENGTH, LENGTH + 1)
    assert publisher.publish("late", queue, mandatory=True) == "refused"
    assert publisher.returned == [], "there is a queue, although a full one"
    assert [int(broker.get(queue).body) for _ in range(taken)] == list(range(taken))
    assert broker.get_now(queue) is None


def test_queue_takes_messages_again_once_there_is_room(
    broker: Broker, publisher: Publisher, kind: str
) -> None:
    queue = rejecting(broker, kind)
    taken = fill(publisher, queue)
    for _ in range(taken):
        broker.get(queue).ack()
    assert publisher.publish("later", queue) == "taken"
    assert bytes(broker.get(queue).body) == b"later"


def test_messages_that_are_held_leave_room(broker: Broker, publisher: Publisher, kind: str) -> None:
    queue = rejecting(broker, kind)
    taken = fill(publisher, queue)
    held = [broker.get(queue) for _ in range(taken)]
    assert publisher.publish("more", queue) == "taken"
    held[0].requeue()  # this is never refused
    assert broker.get(queue) is not None
    assert broker.get(queue) is not None


def test_expired_messages_leave_room(broker: Broker, publisher: Publisher, kind: str) -> None:
    queue = rejecting(broker, kind, length=1, x_message_ttl=200)
    fill(publisher, queue)
    wait_until(lambda: broker.is_empty(queue), "the message did not expire")
    assert publisher.publish("later", queue) == "taken"


def test_other_queues_get_what_one_refuses(broker: Broker, publisher: Publisher, kind: str) -> None:
    exchange = broker.exchange(type="fanout")
    full, roomy = rejecting(broker, kind), broker.queue("roomy")
    for queue in (full, roomy):
        broker.channel.queue_bind(queue, exchange, "")
    said = [publisher.publish(str(number), "", exchange) for number in range(LENGTH + 2)]
    assert said[-1] == "refused", "one refusal speaks for all queues"
    assert [bytes(broker.get(roomy).body) for _ in said] == [b"0", b"1", b"2", b"3", b"4"]


def test_message_without_a_queue_is_returned_and_then_confirmed(
    broker: Broker, publisher: Publisher
) -> None:
    assert publisher.publish("lost", broker.name("missing"), mandatory=True) == "taken"
    assert publisher.returned == [1]


def test_kombu_raises_a_refusal_if_it_was_asked_to_wait_for_confirms(
    broker: Broker, kind: str
) -> None:
    queue = rejecting(broker, kind)

    def publish_all() -> None:
        for number in range(LENGTH + 2):
            broker.publish(number, queue)

    with pytest.raises(MessageNacked):
        publish_all()


def test_dead_letter_for_a_full_queue_is_lost(broker: Broker, publisher: Publisher) -> None:
    full = rejecting(broker, "classic", length=1)
    source = broker.queue("source", x_dead_letter_exchange="", x_dead_letter_routing_key=full)
    fill(publisher, full)
    broker.publish("dead", source)
    broker.get(source).reject()
    wait_until(lambda: broker.is_empty(source), "the message is still there")
    assert bytes(broker.get(full).body) == b"0"
    assert broker.get_now(full) is None


def test_refused_messages_may_be_dead_letters(broker: Broker, publisher: Publisher) -> None:
    exchange, dead = broker.dead_letter_queue()
    queue = broker.queue(
        x_max_length=1, x_overflow="reject-publish-dlx", x_dead_letter_exchange=exchange
    )
    assert [publisher.publish(body, queue) for body in ("0", "1")] == ["taken", "refused"]
    letter = broker.get(dead)
    assert bytes(letter.body) == b"1"
    assert letter.headers["x-death"][0]["reason"] == "maxlen"
    assert bytes(broker.get(queue).body) == b"0"
