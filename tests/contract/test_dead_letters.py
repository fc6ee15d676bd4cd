"""What expires, overflows or is rejected, and where it goes."""

from datetime import datetime

from tests.waiting import wait_until


def test_expired_message_goes_to_the_dead_letter_exchange_with_its_routing_key(broker):
    dlx, dead = broker.dead_letter_queue()
    exchange = broker.exchange()
    queue = broker.queue(x_message_ttl=50, x_dead_letter_exchange=dlx)
    broker.channel.queue_bind(queue, exchange, "work.#")
    broker.publish({"id": 1}, "work.one", exchange, headers={"mine": "kept"})
    message = broker.get(dead)
    assert message.payload == {"id": 1}
    assert message.delivery_info["exchange"] == dlx
    assert message.delivery_info["routing_key"] == "work.one"
    assert message.headers["mine"] == "kept"
    assert broker.is_empty(queue)


def test_dead_letter_tells_where_why_and_when_it_died(broker):
    dlx, dead = broker.dead_letter_queue()
    exchange = broker.exchange()
    queue = broker.queue(x_message_ttl=50, x_dead_letter_exchange=dlx)
    broker.channel.queue_bind(queue, exchange, "work.#")
    broker.publish("late", "work.one", exchange)
    headers = broker.get(dead).headers
    (death,) = headers["x-death"]
    assert isinstance(death.pop("time"), datetime)
    assert death == {
        "count": 1,
        "reason": "expired",
        "queue": queue,
        "exchange": exchange,
        "routing-keys": ["work.one"],
    }
    first = {key: value for key, value in headers.items() if key.startswith("x-first-death")}
    assert first == {
        "x-first-death-reason": "expired",
        "x-first-death-queue": queue,
        "x-first-death-exchange": exchange,
    }


def test_dead_letter_routing_key_replaces_the_original(broker):
    dlx, dead = broker.dead_letter_queue()
    queue = broker.queue(
        x_message_ttl=50, x_dead_letter_exchange=dlx, x_dead_letter_routing_key="graveyard"
    )
    broker.publish("late", queue)
    message = broker.get(dead)
    assert message.delivery_info["routing_key"] == "graveyard"
    assert message.headers["x-death"][0]["routing-keys"] == [queue]


def test_expiration_of_a_message_is_honoured_and_does_not_follow_it(broker):
    dlx, dead = broker.dead_letter_queue()
    queue = broker.queue(x_dead_letter_exchange=dlx)
    broker.publish("late", queue, expiration=0.05)
    message = broker.get(dead)
    assert "expiration" not in message.properties
    assert message.headers["x-death"][0]["original-expiration"] == "50"


def test_the_shorter_of_both_expirations_counts(broker):
    dlx, dead = broker.dead_letter_queue()
    brief = broker.queue("brief", x_message_ttl=50, x_dead_letter_exchange=dlx)
    patient = broker.queue("patient", x_message_ttl=60_000, x_dead_letter_exchange=dlx)
    broker.publish("by queue", brief, expiration=60)
    broker.publish("by message", patient, expiration=0.05)
    assert {broker.get(dead).payload, broker.get(dead).payload} == {"by queue", "by message"}


def test_message_does_not_expire_once_it_is_delivered(broker):
    dlx, dead = broker.dead_letter_queue()
    queue = broker.queue(x_message_ttl=1_000, x_dead_letter_exchange=dlx)
    received = broker.consume(queue)
    broker.publish("taken in time", queue)
    received.until(1)
    received.and_no_more(1, quiet_seconds=1.5)  # longer than the TTL
    received.messages[0].ack()
    assert broker.is_empty(dead)


def test_requeued_message_keeps_the_expiry_it_had(broker):
    dlx, dead = broker.dead_letter_queue()
    queue = broker.queue(x_message_ttl=1_000, x_dead_letter_exchange=dlx)
    received = broker.consume(queue, prefetch=1)
    broker.publish("late", queue)
    received.until(1)
    received.and_no_more(1, quiet_seconds=1.5)  # longer than the TTL
    received.channel.basic_cancel(received.tag)
    received.messages[0].requeue()
    assert broker.get(dead).headers["x-death"][0]["reason"] == "expired"


def test_rejected_message_is_dead_lettered(broker):
    dlx, dead = broker.dead_letter_queue()
    queue = broker.queue(x_dead_letter_exchange=dlx)
    broker.publish("bad", queue)
    broker.get(queue).reject()
    (death,) = broker.get(dead).headers["x-death"]
    assert (death["reason"], death["queue"], death["count"]) == ("rejected", queue, 1)


def test_second_death_in_the_same_way_is_counted(broker):
    dlx, dead = broker.dead_letter_queue()
    queue = broker.queue(x_dead_letter_exchange=dlx)
    broker.publish("bad", queue)
    broker.get(queue).reject()
    again = broker.get(dead)
    broker.publish(again.payload, queue, headers=again.headers)
    broker.get(queue).reject()
    (death,) = broker.get(dead).headers["x-death"]
    # RabbitMQ 4 believes nothing that a client says of deaths
    assert death["count"] == (1 if broker.version >= (4, 0) else 2)


def test_latest_death_comes_first(broker):
    dlx, dead = broker.dead_letter_queue()
    first = broker.queue("first", x_dead_letter_exchange=dlx)
    second = broker.queue("second", x_message_ttl=20, x_dead_letter_exchange=dlx)
    broker.publish("bad", first)
    broker.get(first).reject()
    again = broker.get(dead)
    broker.publish(again.payload, second, headers=again.headers)
    headers = broker.get(dead).headers
    known = [second] if broker.version >= (4, 0) else [second, first]
    assert [death["queue"] for death in headers["x-death"]] == known
    assert headers["x-first-death-queue"] == known[-1]


def test_full_queue_dead_letters_its_oldest_message(broker):
    dlx, dead = broker.dead_letter_queue()
    queue = broker.queue(x_max_length=2, x_dead_letter_exchange=dlx)
    for number in range(3):
        broker.publish(number, queue)
    message = broker.get(dead)
    assert message.payload == 0
    assert message.headers["x-death"][0]["reason"] == "maxlen"
    assert [broker.get(queue).payload, broker.get(queue).payload] == [1, 2]


def test_full_queue_without_dead_letter_exchange_drops_its_oldest_message(broker):
    queue = broker.queue(x_max_length=2)
    for number in range(5):
        broker.publish(number, queue)
    assert [broker.get(queue).payload, broker.get(queue).payload] == [3, 4]


def test_missing_dead_letter_exchange_drops_silently(broker):
    missing = broker.name("missing", "exchange")
    queue = broker.queue(x_message_ttl=20, x_dead_letter_exchange=missing)
    broker.publish("lost", queue)
    wait_until(lambda: broker.is_empty(queue), "the message did not expire")


def test_expired_message_without_dead_letter_exchange_is_dropped(broker):
    queue = broker.queue(x_message_ttl=20)
    broker.publish("lost", queue)
    wait_until(lambda: broker.is_empty(queue), "the message did not expire")


def test_purged_and_deleted_messages_are_not_dead_lettered(broker):
    dlx, dead = broker.dead_letter_queue()
    queue = broker.queue(x_dead_letter_exchange=dlx)
    broker.publish("purged", queue)
    assert broker.channel.queue_purge(queue) == 1
    broker.publish("deleted", queue)
    assert broker.channel.queue_delete(queue) == 1
    assert broker.is_empty(dead)


def test_messages_of_an_auto_deleted_queue_are_not_dead_lettered(broker):
    dlx, dead = broker.dead_letter_queue()
    queue = broker.name("auto")
    arguments = {"x-dead-letter-exchange": dlx}
    broker.channel.queue_declare(queue, auto_delete=True, arguments=arguments)
    received = broker.consume(queue, prefetch=1)
    broker.publish(1, queue)
    broker.publish(2, queue)
    received.until(1)
    received.channel.basic_cancel(received.tag)
    wait_until(lambda: broker.is_gone(queue), "the auto-delete queue is still there")
    assert broker.is_empty(dead)


def test_message_that_would_expire_in_circles_is_dropped(broker):
    exchange = broker.exchange()
    queue = broker.queue(x_message_ttl=20, x_dead_letter_exchange=exchange)
    broker.channel.queue_bind(queue, exchange, "#")
    broker.publish("round and round", queue)
    wait_until(lambda: broker.is_empty(queue), "the message is still there")


def test_consumer_of_dead_letters_needs_nobody_else_to_look(broker):
    dlx, dead = broker.dead_letter_queue()
    queue = broker.queue(x_message_ttl=50, x_dead_letter_exchange=dlx)
    received = broker.consume(dead)
    broker.publish("late", queue)
    received.until(1)
    assert received.bodies == ["late"]
