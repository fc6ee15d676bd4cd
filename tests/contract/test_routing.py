"""Which queues a message reaches."""

import pytest
from amqp.exceptions import ChannelError


def test_default_exchange_routes_to_the_queue_of_that_name(broker):
    queue = broker.queue()
    broker.publish({"n": 1}, queue)
    message = broker.get(queue)
    assert message.payload == {"n": 1}
    assert message.delivery_info["exchange"] == ""
    assert message.delivery_info["routing_key"] == queue


def test_direct_exchange_compares_the_whole_key(broker):
    exchange = broker.exchange(type="direct")
    wanted = broker.bound_queue(exchange, "a.b", "wanted")
    other = broker.bound_queue(exchange, "a.#", "other")
    broker.publish("hello", "a.b", exchange)
    assert broker.get(wanted).payload == "hello"
    assert broker.is_empty(other)


def test_fanout_exchange_gives_every_queue_a_copy_whatever_the_key(broker):
    exchange = broker.exchange(type="fanout")
    queues = [broker.bound_queue(exchange, key, f"queue{key}") for key in ("", "x")]
    broker.publish("hello", "anything", exchange)
    assert [broker.get(queue).payload for queue in queues] == ["hello", "hello"]


@pytest.mark.parametrize(
    ("pattern", "reached", "missed"),
    [
        ("a.*", ["a.b", "a."], ["a", "a.b.c", "b.a"]),
        ("a.#", ["a", "a.b", "a.b.c"], ["b", "ab"]),
        ("#", ["", "a", "a.b.c"], []),
        ("#.z", ["z", "a.z", "a.b.z"], ["a.zz", "z.a"]),
        ("a.#.z", ["a.z", "a.b.c.z"], ["a", "z"]),
        ("*", ["a"], ["", "a.b"]),
        ("a+b.(c)", ["a+b.(c)"], ["aab.c"]),
    ],
)
def test_topic_star_is_one_word_and_hash_any_number(broker, pattern, reached, missed):
    exchange = broker.exchange(type="topic")
    queue = broker.bound_queue(exchange, pattern)
    for key in [*reached, *missed]:
        broker.publish({"key": key}, key, exchange)
    assert [broker.get(queue).payload["key"] for _ in reached] == reached
    assert broker.get_now(queue) is None


def test_queue_that_is_bound_twice_gets_one_copy(broker):
    exchange = broker.exchange(type="topic")
    queue = broker.bound_queue(exchange, "a.*")
    broker.channel.queue_bind(queue, exchange, "#")
    broker.publish("once", "a.b", exchange)
    assert broker.get(queue).payload == "once"
    assert broker.get_now(queue) is None


def test_unbound_queue_gets_nothing_more(broker):
    exchange = broker.exchange(type="topic")
    queue = broker.bound_queue(exchange, "a.*")
    broker.channel.queue_unbind(queue, exchange, "a.*")
    broker.publish("lost", "a.b", exchange)
    assert broker.is_empty(queue)


def test_messages_come_in_the_order_they_were_published(broker):
    queue = broker.queue()
    for number in range(20):
        broker.publish(number, queue)
    received = broker.consume(queue)
    received.until(20)
    assert received.bodies == list(range(20))


def test_headers_properties_and_binary_bodies_arrive_as_sent(broker):
    queue = broker.queue()
    broker.publish(
        b"\x00\xff",
        queue,
        content_type="application/octet-stream",
        content_encoding="binary",
        headers={"text": "ä", "number": 3, "list": [1, None], "table": {"a": True}},
        correlation_id="c1",
        reply_to="r1",
        priority=4,
    )
    message = broker.get(queue)
    assert bytes(message.body) == b"\x00\xff"
    assert message.content_type == "application/octet-stream"
    assert message.headers == {"text": "ä", "number": 3, "list": [1, None], "table": {"a": True}}
    assert message.properties["correlation_id"] == "c1"
    assert message.properties["reply_to"] == "r1"


def test_mandatory_message_that_no_queue_wants_is_returned_at_once(broker):
    exchange = broker.exchange()
    with pytest.raises(ChannelError, match="NO_ROUTE") as returned:
        broker.publish("lost", "nobody", exchange, mandatory=True)
    assert returned.value.reply_code == 312


def test_mandatory_message_to_a_missing_queue_is_returned_at_once(broker):
    with pytest.raises(ChannelError, match="NO_ROUTE") as returned:
        broker.publish("lost", broker.name("missing"), mandatory=True)
    assert returned.value.reply_code == 312


def test_mandatory_message_that_reaches_a_queue_is_not_returned(broker):
    queue = broker.queue()
    broker.publish("kept", queue, mandatory=True)
    assert broker.get(queue).payload == "kept"


def test_message_that_is_not_mandatory_is_lost_silently(broker):
    broker.publish("lost", broker.name("missing"))


def test_publishing_to_a_missing_exchange_is_refused(broker):
    missing = broker.name("missing", "exchange")

    def publish(channel):
        message = channel.prepare_message("x", content_encoding="utf-8")
        channel.basic_publish(message, exchange=missing, routing_key="k")

    assert broker.refusal(publish).reply_code == 404
