"""Delivering, settling, and who gets what when a process dies."""

import threading
from typing import Any

import pytest

from tests.contract.conftest import QUIET_SECONDS
from tests.waiting import wait_until


def test_acknowledged_message_is_gone(broker):
    queue = broker.queue()
    broker.publish("done", queue)
    received = broker.consume(queue)
    received.until(1)[0].ack()
    received.connection.release()
    assert broker.get_now(queue) is None


def test_unacknowledged_message_comes_back_when_its_channel_closes(broker):
    queue = broker.queue()
    broker.publish("again", queue)
    received = broker.consume(queue)
    assert received.until(1)[0].delivery_info["redelivered"] is False
    received.channel.close()
    message = broker.get(queue)
    assert message.payload == "again"
    assert message.delivery_info["redelivered"] is True


def test_requeued_message_is_marked_redelivered_and_keeps_its_place(broker):
    queue = broker.queue()
    for number in range(3):
        broker.publish(number, queue)
    broker.get(queue).requeue()
    message = broker.get(queue)
    assert message.payload == 0
    assert message.delivery_info["redelivered"] is True


def test_rejected_message_without_requeue_is_gone(broker):
    queue = broker.queue()
    broker.publish("bad", queue)
    broker.get(queue).reject()
    assert broker.get_now(queue) is None


def test_ack_of_multiple_settles_all_up_to_it(broker):
    queue = broker.queue()
    for number in range(5):
        broker.publish(number, queue)
    received = broker.consume(queue)
    received.until(5)[2].ack(multiple=True)
    received.connection.release()
    assert [broker.get(queue).payload, broker.get(queue).payload] == [3, 4]
    assert broker.get_now(queue) is None


def test_recover_gives_back_all_that_is_unsettled(broker):
    queue = broker.queue()
    for number in range(3):
        broker.publish(number, queue)
    received = broker.consume(queue)
    received.until(3)[1].ack()
    received.channel.basic_recover(requeue=True)
    received.until(5)
    assert received.bodies[3:] == [0, 2]
    assert all(message.delivery_info["redelivered"] for message in received.messages[3:])


def test_consumer_without_acks_owes_nothing(broker):
    queue = broker.queue()
    for number in range(3):
        broker.publish(number, queue)
    received = broker.consume(queue, no_ack=True)
    received.until(3)
    received.connection.release()
    assert broker.is_empty(queue)


def test_prefetch_limits_what_a_consumer_holds(broker):
    queue = broker.queue()
    for number in range(6):
        broker.publish(number, queue)
    received = broker.consume(queue, prefetch=2)
    received.and_no_more(2)
    received.messages[0].ack()
    received.and_no_more(3)
    received.messages[2].ack(multiple=True)
    received.and_no_more(5)
    assert received.bodies == [0, 1, 2, 3, 4]


def test_prefetch_of_the_channel_is_shared_by_its_consumers(broker):
    queues = [broker.queue("one"), broker.queue("two")]
    for queue in queues:
        for number in range(3):
            broker.publish(number, queue)
    connection = broker.connect()
    got: list[Any] = []
    channel: Any = connection.channel()
    channel.basic_qos(0, 4, True)
    for tag, queue in enumerate(queues):
        channel.basic_consume(queue, consumer_tag=f"shared{tag}", callback=got.append)
    # since 4.3 RabbitMQ takes it for that of each consumer
    most = 6 if broker.version >= (4, 3) else 4
    while len(got) < most:  # py-amqp may deliver while it waits for a reply
        connection.drain_events(timeout=5)
    with pytest.raises(TimeoutError):
        connection.drain_events(timeout=QUIET_SECONDS)
    assert len(got) == most


def test_drain_times_out_when_nothing_comes(broker):
    received = broker.consume(broker.queue())
    with pytest.raises(TimeoutError):
        received.connection.drain_events(timeout=0.05)


def test_one_drain_delivers_one_message(broker):
    queue = broker.queue()
    for number in range(3):
        broker.publish(number, queue)
    received = broker.consume(queue)
    for count in (1, 2, 3):
        received.until(count)
        assert len(received.messages) == count


def test_cancelled_consumer_gets_nothing_more(broker):
    queue = broker.queue()
    received = broker.consume(queue)
    received.channel.basic_cancel(received.tag)
    broker.publish("for somebody else", queue)
    received.and_no_more(0)
    assert broker.get(queue).payload == "for somebody else"


def test_messages_of_a_killed_consumer_are_delivered_again(broker):
    queue = broker.queue()
    for number in range(8):
        broker.publish(number, queue)
    child = broker.child("hold", queue, "5")
    child.lines(5)
    child.kill()
    received = broker.consume(queue)
    received.until(8)
    assert sorted(received.bodies) == list(range(8))
    again = {m.payload for m in received.messages if m.delivery_info["redelivered"]}
    assert again == {0, 1, 2, 3, 4}


def test_exclusive_and_auto_delete_queues_go_with_a_killed_process(broker):
    exclusive, auto_delete = broker.name("exclusive"), broker.name("auto")
    child = broker.child("own", exclusive, auto_delete)
    child.lines(1)
    assert broker.exists(exclusive)
    assert broker.exists(auto_delete)
    child.kill()
    wait_until(lambda: broker.is_gone(exclusive), "the exclusive queue is still there")
    wait_until(lambda: broker.is_gone(auto_delete), "the auto-delete queue is still there")


def test_two_processes_that_contend_get_each_message_once(broker):
    queue, count = broker.queue(), 300
    children = [broker.child("work", queue) for _ in range(2)]
    for child in children:
        assert child.lines(1) == ["ready"]
    for number in range(count):
        broker.publish(number, queue)
    wait_until(lambda: broker.is_empty(queue), "the queue was not emptied")
    got = [int(body) for child in children for body in child.finish()]
    assert sorted(got) == list(range(count))


def test_what_another_process_publishes_arrives(broker):
    queue = broker.queue()
    received = broker.consume(queue)
    broker.child("publish", queue, "20")
    received.until(20)
    assert received.bodies == list(range(20))


def test_many_threads_publish_and_consume_at_once(broker):
    queue, lock = broker.queue(), threading.Lock()
    got: list[int] = []
    failures: list[Exception] = []

    def publish(first):
        try:
            with broker.connect() as connection:
                producer = connection.Producer(auto_declare=False)
                for number in range(first, first + 25):
                    producer.publish(number, routing_key=queue)
        except Exception as error:  # noqa: BLE001 - whatever it was, the test shows it
            failures.append(error)

    def consume():
        try:
            received = broker.consume(queue, prefetch=10)
            while len(got) < 200:
                seen = len(received.messages)
                try:
                    received.connection.drain_events(timeout=0.05)
                except TimeoutError:
                    continue
                for message in received.messages[seen:]:
                    message.ack()
                    with lock:
                        got.append(message.payload)
            received.connection.release()
        except Exception as error:  # noqa: BLE001 - whatever it was, the test shows it
            failures.append(error)

    threads = [threading.Thread(target=publish, args=(n * 25,)) for n in range(8)]
    threads += [threading.Thread(target=consume) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert failures == []
    assert sorted(got) == list(range(200))
