"""What only the embedded broker has: one file, its threads, forks and failures."""

from __future__ import annotations

import contextlib
import gc
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from amqp.exceptions import ChannelError, NotFound, RecoverableConnectionError
from kombu import Connection
from kombu.asynchronous.hub import Hub

from orchestrator import sqlitemq
from tests.contract.conftest import PATIENCE_SECONDS, Broker
from tests.waiting import wait_until


@pytest.fixture
def broker_url(tmp_path: Path) -> str:
    return f"sqlitemq:///{tmp_path / 'broker.db'}"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "broker.db"


# ---- publishing many at once ----


def test_transaction_publishes_all_or_nothing(broker):
    queue, missing = broker.queue(), broker.name("missing", "exchange")

    def publish_both() -> None:
        with broker.channel.transaction():
            broker.publish("taken back", queue)
            broker.publish("refused", "key", missing)

    with pytest.raises(NotFound):
        publish_both()
    assert broker.is_empty(queue)
    with broker.channel.transaction():
        for number in range(3):
            broker.publish(number, queue)
    assert broker.count(queue) == 3


def test_transaction_shows_nothing_to_others_before_it_ends(broker):
    queue, received = broker.queue(), None
    received = broker.consume(queue)
    with broker.channel.transaction():
        broker.publish("soon", queue)
        child = broker.child("publish", queue, "1")  # waits until the file is free
        assert received.messages == []
    received.until(2)
    assert received.bodies == ["soon", 0]
    assert child.lines(1) == ["published"]


def test_unroutable_message_in_a_transaction_is_named_and_the_others_are_kept(broker):
    queue = broker.queue()
    with broker.channel.transaction():
        broker.publish("kept", queue, mandatory=True)
        with pytest.raises(ChannelError, match="NO_ROUTE"):
            broker.publish("lost", broker.name("missing"), mandatory=True)
    assert broker.get(queue).payload == "kept"


def test_publish_and_ack_in_one_transaction_stand_or_fall_together(broker):
    source, target = broker.queue("source"), broker.queue("target")
    broker.publish("moved", source)
    received = broker.consume(source)
    (message,) = received.until(1)
    with received.channel.transaction():
        received.connection.Producer(received.channel).publish("moved", routing_key=target)
        message.ack()
    assert (broker.count(source), broker.count(target)) == (0, 1)


def test_confirms_are_told_when_events_are_drained(broker):
    queue, confirmed = broker.queue(), []
    broker.channel.confirm_select()
    broker.channel.events["basic_ack"].add(lambda tag, multiple: confirmed.append((tag, multiple)))
    for _ in range(3):
        broker.publish("x", queue)
    assert confirmed == []
    broker.connection.drain_events(timeout=0)
    assert confirmed == [(3, True)]


# ---- with nobody there to look ----


def test_sweep_dead_letters_without_any_consumer(broker, file):
    dlx, dead = broker.dead_letter_queue()
    queue = broker.queue(x_message_ttl=1, x_dead_letter_exchange=dlx)
    with broker.channel.transaction():
        for number in range(1200):  # more than one batch
            broker.publish(number, queue)
    broker.connection.release()
    count = "SELECT count(*) FROM message JOIN queue ON queue.id = queue_id WHERE name = ?"
    with contextlib.closing(sqlite3.connect(file)) as db:

        def is_swept() -> bool:
            sqlitemq.sweep(broker.url)
            return bool(db.execute(count, (dead,)).fetchone() == (1200,))

        # a slow publisher dead-letters some in passing, and what came last expires last
        wait_until(is_swept, "not all of it has expired")


def test_connection_that_is_dropped_unclosed_gives_back_what_it_held(broker):
    queue = broker.queue()
    broker.publish("again", queue)
    dropped = Connection(broker.url)
    channel: Any = dropped.channel()
    assert channel.basic_get(queue) is not None
    del dropped, channel
    gc.collect()
    assert broker.get(queue).delivery_info["redelivered"] is True


# ---- being woken ----


def test_consumer_is_woken_by_a_publish_and_does_not_wait_for_its_poll(broker):
    queue = broker.queue()
    with Connection(broker.url, transport_options={"polling_interval": 60}) as sleeper:
        channel: Any = sleeper.channel()
        got: list[float] = []
        channel.basic_consume(queue, no_ack=True, callback=lambda _: got.append(time.monotonic()))
        thread = threading.Thread(target=sleeper.drain_events, kwargs={"timeout": 55})
        thread.start()
        published_at = time.monotonic()
        broker.publish("wake up", queue)
        thread.join(PATIENCE_SECONDS)
    assert got, "the consumer slept on"
    assert got[0] - published_at < 30  # half of its poll


@pytest.fixture
def hub() -> Iterator[Hub]:
    hub = Hub()
    yield hub
    hub.close()


def run(hub: Hub, until: Callable[[], object]) -> None:
    def look() -> object:
        hub.run_once()
        return until()

    wait_until(look, "the event loop did not deliver")


def test_event_loop_delivers_as_fast_as_messages_are_settled(broker, hub):
    queue, got = broker.queue(), []

    def settle(message: Any) -> None:
        message.ack()
        got.append(message.payload)

    with Connection(broker.url, transport_options={"polling_interval": 1}) as connection:
        channel: Any = connection.channel()
        channel.basic_qos(0, 2, False)
        connection.register_with_event_loop(hub)
        channel.basic_consume(queue, callback=partial(hub.call_soon, settle))
        with broker.channel.transaction():
            for number in range(50):
                broker.publish(number, queue)
        started_at = time.monotonic()
        run(hub, lambda: len(got) == 50)
        assert time.monotonic() - started_at < 20  # 25 full windows, at a second a poll
    assert sorted(got) == list(range(50))


def test_event_loop_raises_what_broke_the_file(broker, hub, file):
    with Connection(broker.url) as connection:
        channel: Any = connection.channel()
        connection.register_with_event_loop(hub)
        channel.basic_consume(broker.queue(), callback=print)
        file.unlink()
        hub.propagate_errors = connection.connection_errors
        with pytest.raises(connection.connection_errors, match="removed or replaced"):
            run(hub, lambda: False)
        assert not connection.connected


# ---- forks ----


def test_forked_child_uses_a_connection_of_its_own(broker):
    queue = broker.queue()
    broker.publish("from the parent", queue)
    held = broker.get(queue)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            with pytest.raises(RecoverableConnectionError):
                broker.channel.basic_get(queue)
            broker.connection.release()  # the parent's must survive this
            with Connection(broker.url) as connection:
                connection.Producer().publish("from the child", routing_key=queue)
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert broker.get(queue).payload == "from the child"
    assert broker.get_now(queue) is None
    held.ack()
    assert broker.count(queue) == 0


# ---- trouble with the file ----


def test_file_that_is_no_database_is_a_connection_error(tmp_path):
    (tmp_path / "broker.db").write_bytes(b"this is no database" * 100)
    connection = Connection(f"sqlitemq:///{tmp_path / 'broker.db'}")
    with pytest.raises(connection.recoverable_connection_errors, match="is not a database"):
        connection.transport.establish_connection()


def test_directory_that_cannot_be_made_is_a_connection_error(tmp_path):
    (tmp_path / "occupied").write_text("")
    connection = Connection(f"sqlitemq:///{tmp_path / 'occupied' / 'broker.db'}")
    with pytest.raises(connection.recoverable_connection_errors, match="occupied"):
        connection.transport.establish_connection()


def test_file_of_another_format_is_refused_with_advice(broker_url, file):
    with Connection(broker_url) as connection:
        connection.connect()
    with sqlite3.connect(file) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(sqlitemq.BrokerFileError, match="format 99"):
        Connection(broker_url).transport.establish_connection()


def test_file_of_the_first_format_is_brought_to_the_present_one_with_its_messages(broker_url, file):
    with Broker(broker_url) as broker:
        broker.channel.queue_declare("kept", durable=True, auto_delete=False)
        for number in range(2):
            broker.publish(number, "kept")
        broker.get("kept").requeue()
    with sqlite3.connect(file) as db:
        db.executescript(
            """
            DROP INDEX message_ready;
            ALTER TABLE message DROP COLUMN priority;
            ALTER TABLE message RENAME COLUMN returns TO redelivered;
            CREATE INDEX message_ready ON message (queue_id, id) WHERE owner IS NULL;
            PRAGMA user_version = 1;
            """
        )
    db.close()
    with Broker(broker_url) as broker:
        got = [broker.get("kept") for _ in range(2)]
        assert [message.payload for message in got] == [0, 1]
        assert [message.delivery_info["redelivered"] for message in got] == [True, False]
        assert broker.queue("ranked", x_max_priority=5)


def test_connection_can_be_made_again_after_the_file_was_replaced(broker, file):
    broker.queue()
    for path in file.parent.iterdir():
        path.unlink()

    def notices() -> bool:
        try:
            broker.count("anything")
        except RecoverableConnectionError:
            return True
        except ChannelError:
            return False
        return False

    wait_until(notices, "the loss of the file went unnoticed")
    assert not broker.connection.connected
    with Broker(broker.url) as again:
        queue = again.queue("new")
        again.publish("works", queue)
        assert again.get(queue).payload == "works"


def test_damaged_file_is_a_connection_error(broker_url, file):
    with Broker(broker_url) as broker, broker.channel.transaction():
        queue = broker.queue()
        for _ in range(300):
            broker.publish("x" * 500, queue)
    with file.open("r+b") as raw:
        raw.seek(4096)
        raw.write(os.urandom(file.stat().st_size - 4096))
    connection = Connection(broker_url)
    with pytest.raises(connection.connection_errors, match=r"the broker file .* failed"):
        connection.transport.establish_connection()


@pytest.mark.parametrize("url", ["sqlitemq://", "sqlitemq:///", "sqlitemq://host/file.db"])
def test_url_that_names_no_file_says_what_is_expected(url):
    with pytest.raises(ValueError, match="expected sqlitemq:////absolute/path"):
        Connection(url).connect()
