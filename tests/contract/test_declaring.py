"""What may be declared, and in which words the rest is refused."""

import time

import pytest

from tests.waiting import wait_until


def test_declaring_the_same_again_changes_nothing(broker):
    queue = broker.queue(x_message_ttl=60_000)
    broker.publish("kept", queue)
    assert broker.queue(x_message_ttl=60_000) == queue
    assert broker.get(queue).payload == "kept"


@pytest.mark.parametrize(
    ("declared", "again", "said"),
    [
        (
            {"x-message-ttl": 1000},
            {"x-message-ttl": 2000},
            "inequivalent arg 'x-message-ttl' for queue '{queue}' in vhost '{vhost}': "
            "received '2000' but current is '1000'",
        ),
        (
            {"x-dead-letter-exchange": "d"},
            {},
            "inequivalent arg 'x-dead-letter-exchange' for queue '{queue}' in vhost '{vhost}': "
            "received none but current is the value 'd' of type 'longstr'",
        ),
        (
            {},
            {"x-max-length": 5_000_000_000},
            "inequivalent arg 'x-max-length' for queue '{queue}' in vhost '{vhost}': "
            "received the value '5000000000' of type 'long' but current is none",
        ),
    ],
)
def test_unequal_queue_argument_is_named_with_both_values(broker, declared, again, said):
    queue = broker.name("queue")
    options = {"durable": True, "auto_delete": False}
    broker.channel.queue_declare(queue, arguments=declared, **options)
    refusal = broker.refusal(lambda ch: ch.queue_declare(queue, arguments=again, **options))
    assert refusal.reply_code == 406
    vhost = refusal.reply_text.split("in vhost '")[1].split("'")[0]
    assert refusal.reply_text == "PRECONDITION_FAILED - " + said.format(queue=queue, vhost=vhost)


@pytest.mark.parametrize("field", ["durable", "auto_delete"])
def test_unequal_queue_property_is_named_with_both_values(broker, field):
    queue = broker.name("queue")
    equal = {"durable": True, "auto_delete": True}
    broker.channel.queue_declare(queue, **equal)
    refusal = broker.refusal(lambda ch: ch.queue_declare(queue, **{**equal, field: False}))
    assert refusal.reply_code == 406
    assert f"inequivalent arg '{field}' for queue '{queue}'" in refusal.reply_text
    assert "received 'false' but current is 'true'" in refusal.reply_text


@pytest.mark.parametrize(
    ("again", "said"),
    [
        ({"type": "direct"}, "arg 'type' for exchange '{name}'"),
        ({"durable": False}, "arg 'durable' for exchange '{name}'"),
        ({"auto_delete": True}, "arg 'auto_delete' for exchange '{name}'"),
        ({"arguments": {"alternate-exchange": "x"}}, "arg 'alternate-exchange' for"),
    ],
)
def test_unequal_exchange_is_refused_naming_what_differs(broker, again, said):
    name = broker.exchange(type="topic")
    equal = {"type": "topic", "durable": True, "auto_delete": False}
    refusal = broker.refusal(lambda ch: ch.exchange_declare(name, **{**equal, **again}))
    assert refusal.reply_code == 406
    assert f"PRECONDITION_FAILED - inequivalent {said.format(name=name)}" in refusal.reply_text


@pytest.mark.parametrize(
    "arguments", [{"x-message-ttl": "soon"}, {"x-message-ttl": -1}, {"x-expires": 0}]
)
def test_argument_that_makes_no_sense_is_refused(broker, arguments):
    name = broker.name("queue")
    refusal = broker.refusal(lambda ch: ch.queue_declare(name, arguments=arguments))
    assert refusal.reply_code == 406
    assert f"invalid arg '{next(iter(arguments))}'" in refusal.reply_text


def test_unknown_exchange_type_is_refused(broker):
    name = broker.name("exchange", "exchange")
    refusal = broker.refusal(lambda ch: ch.exchange_declare(name, "weird"))
    assert refusal.reply_code == (406 if broker.version >= (4, 0) else 503)


@pytest.mark.parametrize(
    "method",
    [
        lambda channel, name: channel.queue_declare(name, passive=True),
        lambda channel, name: channel.exchange_declare(name, "topic", passive=True),
        lambda channel, name: channel.queue_bind(name, "amq.topic", "k"),
        lambda channel, name: channel.queue_purge(name),
        lambda channel, name: channel.basic_get(name),
        lambda channel, name: channel.basic_consume(name),
    ],
)
def test_what_was_never_declared_is_not_found(broker, method):
    name = broker.name("missing")
    refusal = broker.refusal(lambda channel: method(channel, name))
    assert refusal.reply_code == 404
    assert f"'{name}'" in refusal.reply_text


def test_binding_to_a_missing_exchange_is_refused(broker):
    queue, missing = broker.queue(), broker.name("missing", "exchange")
    refusal = broker.refusal(lambda channel: channel.queue_bind(queue, missing, "k"))
    assert refusal.reply_code == 404
    assert f"no exchange '{missing}'" in refusal.reply_text


def test_passive_declare_counts_messages_and_consumers(broker):
    queue = broker.queue()
    for number in range(3):
        broker.publish(number, queue)
    received = broker.consume(queue, prefetch=1)
    received.until(1)
    declared = broker.channel.queue_declare(queue, passive=True)
    assert (declared.message_count, declared.consumer_count) == (2, 1)


def test_deleting_what_is_not_there_is_fine(broker):
    assert broker.channel.queue_delete(broker.name("missing")) == 0
    broker.channel.exchange_delete(broker.name("missing", "exchange"))


def test_delete_if_empty_refuses_a_queue_with_messages(broker):
    queue = broker.queue()
    broker.publish("kept", queue)
    refusal = broker.refusal(lambda channel: channel.queue_delete(queue, if_empty=True))
    assert refusal.reply_code == 406
    assert broker.count(queue) == 1


def test_delete_if_unused_refuses_a_queue_with_consumers(broker):
    queue = broker.queue()
    broker.consume(queue)
    refusal = broker.refusal(lambda channel: channel.queue_delete(queue, if_unused=True))
    assert refusal.reply_code == 406


def test_queue_of_unknown_name_gets_one(broker):
    declared = broker.channel.queue_declare("", exclusive=True)
    assert declared.queue.startswith("amq.gen-")


def test_exclusive_queue_is_locked_for_other_connections(broker):
    queue = broker.name("exclusive")
    broker.channel.queue_declare(queue, exclusive=True)
    assert broker.refusal(lambda ch: ch.queue_declare(queue, exclusive=True)).reply_code == 405
    assert broker.refusal(lambda ch: ch.basic_get(queue)).reply_code == 405


def test_exclusive_queue_goes_with_its_connection(broker):
    queue = broker.name("exclusive")
    with broker.connect() as connection:
        connection.channel().queue_declare(queue, exclusive=True, auto_delete=False)
        assert broker.exists(queue)
    wait_until(lambda: broker.is_gone(queue), "the exclusive queue is still there")


def test_auto_delete_queue_goes_with_its_last_consumer(broker):
    queue = broker.name("auto")
    broker.channel.queue_declare(queue, auto_delete=True)
    first, second = broker.consume(queue), broker.consume(queue)
    first.channel.basic_cancel(first.tag)
    assert broker.exists(queue)
    second.channel.basic_cancel(second.tag)
    wait_until(lambda: broker.is_gone(queue), "the auto-delete queue is still there")


def test_auto_delete_queue_that_was_never_consumed_stays(broker):
    queue = broker.name("auto")
    with broker.connect() as connection:
        connection.channel().queue_declare(queue, auto_delete=True)
    assert broker.exists(queue)


def test_queue_expires_when_it_is_not_used(broker):
    queue = broker.queue(x_expires=100)
    # looking with a passive declare would be a use, and keep it alive
    wait_until(lambda: broker.is_returned(queue), "the queue did not expire")


def test_queue_with_a_consumer_does_not_expire(broker):
    queue = broker.queue(x_expires=400)
    # on the channel that is there already: to connect may take longer than the queue lives
    broker.channel.basic_consume(queue, consumer_tag="user", callback=lambda raw: None)
    time.sleep(0.8)
    assert broker.exists(queue)


def test_consumers_of_a_deleted_queue_are_told(broker):
    from amqp.exceptions import ConsumerCancelled

    queue = broker.queue()
    received = broker.consume(queue)
    broker.channel.queue_delete(queue)
    with pytest.raises(ConsumerCancelled):
        received.until(1)
