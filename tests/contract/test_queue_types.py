"""Classic and quorum queues. What differs between them, and from RabbitMQ's documents, was measured
with RabbitMQ 3.10.8, 4.0.5 and 4.3.6; a case says so where it does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from amqp.exceptions import AMQPNotImplementedError

from orchestrator.core.topology import QUORUM_ARGUMENTS
from tests.contract.conftest import Broker, Received
from tests.waiting import wait_until

COUNT = "x-delivery-count"


@pytest.fixture(params=["classic", "quorum"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# --- declaring ------------------------------------------------------------------------------------


def test_classic_is_what_a_queue_without_a_type_is(broker: Broker) -> None:
    plain, classic = broker.queue("plain"), broker.queue("classic", x_queue_type="classic")
    declared = {"durable": True, "auto_delete": False}
    broker.channel.queue_declare(plain, arguments={"x-queue-type": "classic"}, **declared)
    broker.channel.queue_declare(classic, **declared)


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        ("classic", "quorum", "received 'quorum' but current is 'classic'"),
        ("quorum", "classic", "received 'classic' but current is 'quorum'"),
        ("quorum", None, "received none but current is the value 'quorum' of type 'longstr'"),
        (None, "quorum", "received the value 'quorum' of type 'longstr' but current is none"),
    ],
)
def test_queue_of_the_other_type_is_refused(
    broker: Broker, first: str | None, second: str | None, said: str
) -> None:
    typed = [{"x-queue-type": each} if each else {} for each in (first, second)]
    queue, declared = broker.name("queue"), {"durable": True, "auto_delete": False}
    broker.channel.queue_declare(queue, arguments=typed[0], **declared)
    refusal = broker.refusal(lambda ch: ch.queue_declare(queue, arguments=typed[1], **declared))
    assert refusal.reply_code == 406
    said_text = str(refusal.reply_text)
    assert f"inequivalent arg 'x-queue-type' for queue '{queue}'" in said_text
    if broker.version >= (4, 0):
        said = f"received '{second or 'classic'}' but current is '{first or 'classic'}'"
    assert said_text.endswith(said)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"durable": False}, "non-durable"),
        ({"auto_delete": True}, "auto-delete"),
        ({"exclusive": True}, "exclusive-owner"),
    ],
)
def test_quorum_queue_is_durable_shared_and_stays(
    broker: Broker, options: dict[str, bool], named: str
) -> None:
    queue, arguments = broker.name("queue"), {"x-queue-type": "quorum"}
    given = {"durable": True, "auto_delete": False, **options}
    refusal = broker.refusal(lambda ch: ch.queue_declare(queue, arguments=arguments, **given))
    assert refusal.reply_code == 406
    assert f"invalid property '{named}' for queue '{queue}'" in str(refusal.reply_text)


@pytest.mark.parametrize(
    ("argument", "value", "refused_by"),
    [
        ("x-queue-type", "weird", {"classic", "quorum"}),
        ("x-queue-type", 7, {"classic", "quorum"}),
        ("x-overflow", "weird", {"classic", "quorum"}),
        ("x-overflow", 7, {"classic", "quorum"}),
        ("x-overflow", "drop-head", set()),
        ("x-overflow", "reject-publish", set()),
        ("x-overflow", "reject-publish-dlx", set()),
        ("x-max-length", -1, {"classic", "quorum"}),
        ("x-max-priority", 0, {"quorum"}),
        ("x-max-priority", 255, {"quorum"}),
        ("x-max-priority", 256, {"classic", "quorum"}),
        ("x-max-priority", -1, {"classic", "quorum"}),
        ("x-max-priority", "5", {"classic", "quorum"}),
        ("x-delivery-limit", 3, {"classic"}),
        ("x-dead-letter-strategy", "at-least-once", {"classic"}),
        ("x-queue-mode", "lazy", {"quorum"}),
    ],
)
def test_argument_that_a_type_does_not_know_is_refused(
    broker: Broker, kind: str, argument: str, value: Any, refused_by: set[str]
) -> None:
    queue, arguments = broker.name("queue"), {"x-queue-type": kind, argument: value}

    def declare(channel: Any) -> None:
        channel.queue_declare(queue, durable=True, auto_delete=False, arguments=arguments)

    if kind not in refused_by:
        declare(broker.channel)
        return
    refusal = broker.refusal(declare)
    assert refusal.reply_code == 406
    assert f"invalid arg '{argument}' for queue '{queue}'" in str(refusal.reply_text)


def test_passive_declaration_compares_no_arguments(broker: Broker, kind: str) -> None:
    queue = broker.queue(x_queue_type=kind)
    arguments = {"x-max-length": 7}
    declared = broker.channel.queue_declare(queue, passive=True, arguments=arguments)
    assert declared.queue == queue
    missing = broker.name("missing")
    refusal = broker.refusal(
        lambda ch: ch.queue_declare(missing, passive=True, arguments={"x-queue-type": kind})
    )
    assert (refusal.reply_code, f"no queue '{missing}'" in str(refusal.reply_text)) == (404, True)


def test_quorum_queue_refuses_a_prefetch_of_the_whole_channel(broker: Broker, kind: str) -> None:
    queue = broker.queue(x_queue_type=kind)

    def consume(channel: Any) -> None:
        channel.basic_qos(0, 5, True)
        channel.basic_consume(queue)

    # since 4.3 RabbitMQ takes it for that of each consumer
    if kind == "classic" or broker.version >= (4, 3):
        consume(broker.connect().channel())
        return
    refusal = broker.refusal(consume)
    assert isinstance(refusal, AMQPNotImplementedError)
    assert "does not support global qos" in str(refusal.reply_text)


# --- messages that come again ---------------------------------------------------------------------


def counted(message: Any) -> Any:
    return message.delivery_info["redelivered"], message.headers.get(COUNT)


def recover(received: Received) -> None:
    received.channel.basic_recover(requeue=True)


@pytest.mark.parametrize(
    "lose",
    [
        lambda received: received.messages[0].requeue(),
        lambda received: received.channel.close(),
        lambda received: received.connection.release(),
        recover,
    ],
    ids=["requeue", "channel", "connection", "recover"],
)
def test_each_delivery_that_was_lost_is_counted_by_quorum_queues_alone(
    broker: Broker, kind: str, lose: Callable[[Received], None]
) -> None:
    queue = broker.queue(x_queue_type=kind)
    broker.publish("again", queue, headers={"mine": 1})
    seen = []
    for _ in range(3):
        received = broker.consume(queue)
        message = received.until(1)[0]
        seen.append(counted(message))
        assert message.headers["mine"] == 1
        received.channel.basic_cancel(received.tag)
        lose(received)
        if received.connection.connected:
            received.connection.release()
    last = broker.get(queue)
    seen.append(counted(last))
    assert [redelivered for redelivered, _ in seen] == [False, True, True, True]
    # at the first delivery, RabbitMQ 3.10 leaves the header out (basic.consume) or writes 0
    # (basic.get); later ones always leave it out
    assert seen[0][1] in (None, 0)
    # a message that was asked for again did nothing wrong, for 4.3
    is_counted = kind == "quorum" and (lose is not recover or broker.version < (4, 3))
    expected = [1, 2, 3] if is_counted else [None] * 3
    assert [count for _, count in seen[1:]] == expected


def test_count_that_a_publisher_wrote_is_believed_of_classic_queues_alone(
    broker: Broker, kind: str
) -> None:
    queue = broker.queue(x_queue_type=kind)
    broker.publish("forged", queue, headers={COUNT: 9})
    broker.get(queue).requeue()
    assert broker.get(queue).headers[COUNT] == (1 if kind == "quorum" else 9)


def test_killed_consumer_counts_for_all_that_it_held(broker: Broker, kind: str) -> None:
    queue = broker.queue(x_queue_type=kind)
    for number in range(5):
        broker.publish(number, queue)
    child = broker.child("hold", queue, "3")
    child.lines(3)
    child.kill()
    received = broker.consume(queue)
    counts = {m.payload: m.headers.get(COUNT) or 0 for m in received.until(5)}
    assert [counts[number] for number in range(5)] == (
        [1, 1, 1, 0, 0] if kind == "quorum" else [0] * 5
    )


def test_message_beyond_its_delivery_limit_is_a_dead_letter(broker: Broker) -> None:
    exchange, dead = broker.dead_letter_queue()
    queue = broker.queue(x_queue_type="quorum", x_delivery_limit=2, x_dead_letter_exchange=exchange)
    broker.publish("poison", queue)
    for _ in range(3):  # the limit counts returns, so there is one delivery more
        broker.get(queue).requeue()
    letter = broker.get(dead)
    assert letter.payload == "poison"
    (death,) = letter.headers["x-death"]
    assert (death["reason"], death["queue"], death["count"]) == ("delivery_limit", queue, 1)
    assert COUNT not in letter.headers
    assert letter.delivery_info["redelivered"] is (broker.version >= (4, 3))
    assert broker.get_now(queue) is None


def test_messages_of_a_lost_connection_reach_their_delivery_limit_too(broker: Broker) -> None:
    exchange, dead = broker.dead_letter_queue()
    queue = broker.queue(x_queue_type="quorum", x_delivery_limit=1, x_dead_letter_exchange=exchange)
    for number in range(3):
        broker.publish(number, queue)
    for _ in range(2):
        received = broker.consume(queue)
        received.until(3)
        received.connection.release()
    assert sorted(broker.get(dead).payload for _ in range(3)) == [0, 1, 2]
    assert broker.is_empty(queue)


def test_without_a_dead_letter_exchange_the_message_beyond_the_limit_is_gone(
    broker: Broker,
) -> None:
    queue = broker.queue(x_queue_type="quorum", x_delivery_limit=0)
    broker.publish("poison", queue)
    broker.get(queue).requeue()
    wait_until(lambda: broker.is_empty(queue), "the message is still there")
    assert broker.get_now(queue) is None


def test_no_limit_ends_what_comes_back_to_one_of_our_quorum_queues(broker: Broker) -> None:
    ours: dict[str, Any] = {key.replace("-", "_"): value for key, value in QUORUM_ARGUMENTS.items()}
    queue = broker.queue(x_queue_type="quorum", **ours)
    broker.publish("letter", queue)
    for _ in range(30):  # RabbitMQ 4 gives up after 20
        broker.get(queue).requeue()
    assert broker.get(queue).payload == "letter"


# --- priorities -----------------------------------------------------------------------------------


def publish_ranked(broker: Broker, queue: str, *ranks: int | None) -> None:
    for position, rank in enumerate(ranks):
        options: dict[str, Any] = {} if rank is None else {"priority": rank}
        broker.publish(f"{position}:{rank}", queue, **options)


def test_ready_messages_are_ordered_by_priority_and_age(broker: Broker) -> None:
    queue = broker.queue(x_max_priority=5)
    publish_ranked(broker, queue, None, 3, 5, 9, 3, 0, 5)
    got = [broker.get(queue).payload for _ in range(7)]
    # 9 counts as 5, which is the most; none counts as 0
    assert got == ["2:5", "3:9", "6:5", "1:3", "4:3", "0:None", "5:0"]


def test_consumer_gets_the_highest_priority_first(broker: Broker) -> None:
    queue = broker.queue(x_max_priority=255)
    publish_ranked(broker, queue, 1, 255, 7)
    assert [m.payload for m in broker.consume(queue).until(3)] == ["1:255", "2:7", "0:1"]


def test_requeued_message_keeps_its_priority_and_its_place(broker: Broker) -> None:
    queue = broker.queue(x_max_priority=5)
    publish_ranked(broker, queue, 1, 5, 3, 5)
    held = [broker.get(queue) for _ in range(3)]
    for message in reversed(held):
        message.requeue()
    assert [broker.get(queue).payload for _ in range(4)] == ["1:5", "3:5", "2:3", "0:1"]


def test_priority_of_a_message_counts_for_nothing_without_the_argument(
    broker: Broker, kind: str
) -> None:
    queue = broker.queue(x_queue_type=kind)
    publish_ranked(broker, queue, 1, 5, 3)
    got = [broker.get(queue) for _ in range(3)]
    expected = ["0:1", "1:5", "2:3"]
    if kind == "quorum" and broker.version >= (4, 3):
        expected = ["1:5", "2:3", "0:1"]
    elif kind == "quorum" and broker.version >= (4, 0):  # what is above 4 before the rest
        expected = ["1:5", "0:1", "2:3"]
    assert [message.payload for message in got] == expected
    assert {message.payload: message.properties["priority"] for message in got}["1:5"] == 5


def test_full_queue_drops_its_head_even_if_that_has_the_highest_priority(broker: Broker) -> None:
    queue = broker.queue(x_max_priority=5, x_max_length=2)
    publish_ranked(broker, queue, 1, 5, 3)
    assert [broker.get(queue).payload for _ in range(2)] == ["2:3", "0:1"]


def test_dead_letter_keeps_its_priority(broker: Broker) -> None:
    dead = broker.queue("dead", x_max_priority=5)
    queue = broker.queue(x_dead_letter_exchange="", x_dead_letter_routing_key=dead)
    publish_ranked(broker, queue, 1, 5)
    for _ in range(2):
        broker.get(queue).reject()
    wait_until(lambda: broker.count(dead) == 2, "the dead letters did not come")
    assert [broker.get(dead).payload for _ in range(2)] == ["1:5", "0:1"]
