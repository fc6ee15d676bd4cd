"""One set of cases, run against the embedded broker and against RabbitMQ."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from amqp import Channel
from amqp.exceptions import AMQPError, ChannelError
from kombu import Connection
from kombu.transport import TRANSPORT_ALIASES

from tests.waiting import wait_until

TRANSPORT_ALIASES["sqlitemq"] = "orchestrator.sqlitemq:Transport"

REPOSITORY = Path(__file__).resolve().parents[2]
PATIENCE_SECONDS = 60.0
#: how long something must not happen before we believe that it will not
QUIET_SECONDS = 0.25

BROKERS = ["sqlitemq", "rabbitmq"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.contract)


@pytest.fixture(params=BROKERS)
def broker_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlitemq":
        return f"sqlitemq:///{tmp_path / 'broker.db'}"
    url: str = request.getfixturevalue("rabbitmq_url")
    return url


@pytest.fixture
def broker(broker_url: str) -> Iterator[Broker]:
    with Broker(broker_url) as broker:
        yield broker


class Broker:
    """What the cases need of a broker. Names are unique; what was declared is removed again."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._cleanup = contextlib.ExitStack()
        self._suffix = uuid.uuid4().hex[:8]
        self._names: dict[str, list[str]] = {"queue": [], "exchange": []}

    def __enter__(self) -> Broker:
        self.connection = self.connect()
        self.channel: Any = self.connection.channel()
        return self

    def __exit__(self, *_: object) -> None:
        self._cleanup.close()
        with Connection(self.url) as connection:
            channel: Any = connection.channel()
            for name in self._names["queue"]:
                channel.queue_delete(name)
            for name in self._names["exchange"]:
                channel.exchange_delete(name)

    @property
    def version(self) -> tuple[int, int]:
        """That of RabbitMQ; the embedded broker does as 3.10."""
        if not isinstance(self.channel, Channel):
            return 3, 10
        major, minor, *_ = self.channel.connection.server_properties["version"].split(".")
        return int(major), int(minor)

    def connect(self) -> Connection:
        """A connection of its own; publishes on it return once they are confirmed."""
        connection = Connection(self.url, transport_options={"confirm_publish": True})
        self._cleanup.callback(connection.release)
        connection.connect()
        return connection

    # ---- declaring ----

    def name(self, what: str, kind: str = "queue") -> str:
        name = f"contract.{what}.{self._suffix}"
        self._names[kind].append(name)
        return name

    def exchange(self, what: str = "exchange", type: str = "topic") -> str:
        name = self.name(what, "exchange")
        self.channel.exchange_declare(name, type, durable=True, auto_delete=False)
        return name

    def queue(self, what: str = "queue", **arguments: object) -> str:
        """Declare a durable queue; `x_message_ttl=5` becomes the argument x-message-ttl."""
        name = self.name(what)
        named = {key.replace("_", "-"): value for key, value in arguments.items()}
        self.channel.queue_declare(name, durable=True, auto_delete=False, arguments=named)
        return name

    def bound_queue(self, exchange: str, routing_key: str, what: str = "queue") -> str:
        queue = self.queue(what)
        self.channel.queue_bind(queue, exchange, routing_key)
        return queue

    def dead_letter_queue(self) -> tuple[str, str]:
        """A dead-letter exchange and the queue that gets everything from it."""
        exchange = self.exchange("dlx")
        return exchange, self.bound_queue(exchange, "#", "dead")

    def refusal(self, method: Callable[[Any], object]) -> AMQPError:
        """Call with a channel of its own, which RabbitMQ closes; returns the broker's refusal."""
        with self.connect() as connection, pytest.raises(AMQPError) as refused:
            method(connection.channel())
        return refused.value

    # ---- messages ----

    def publish(self, body: object, routing_key: str, exchange: str = "", **options: Any) -> None:
        producer = self.connection.Producer(self.channel, auto_declare=False)
        producer.publish(body, exchange=exchange, routing_key=routing_key, **options)

    def get(self, queue: str) -> Any:
        """The next message; waits for it."""
        return wait_until(lambda: self.get_now(queue), f"no message in {queue}")

    def get_now(self, queue: str) -> Any | None:
        message = self.channel.basic_get(queue)
        return None if message is None else self.channel.message_to_python(message)

    def count(self, queue: str) -> int:
        declared: Any = self.channel.queue_declare(queue, passive=True)
        return int(declared.message_count)

    def exists(self, queue: str) -> bool:
        with self.connect() as connection:
            channel: Any = connection.channel()
            try:
                channel.queue_declare(queue, passive=True)
            except ChannelError as error:
                return error.reply_code != 404
            return True

    def is_gone(self, queue: str) -> bool:
        return not self.exists(queue)

    def is_returned(self, queue: str) -> bool:
        """Whether a mandatory message to it comes back."""
        try:
            self.publish("is there anybody?", queue, mandatory=True)
        except ChannelError as error:
            return error.reply_code == 312
        return False

    def is_empty(self, queue: str) -> bool:
        return self.count(queue) == 0

    def consume(self, queue: str, *, prefetch: int = 0, no_ack: bool = False) -> Received:
        return Received(self.connect(), queue, prefetch=prefetch, no_ack=no_ack)

    def child(self, what: str, *arguments: str) -> Child:
        """Another process, see children.py; killed at the end if it still runs."""
        child = Child(what, self.url, *arguments)
        self._cleanup.callback(child.close)
        return child


class Received:
    """What one consumer has got so far."""

    def __init__(self, connection: Any, queue: str, *, prefetch: int, no_ack: bool) -> None:
        self.connection = connection
        self.messages: list[Any] = []
        self.channel = connection.channel()
        if prefetch:
            self.channel.basic_qos(0, prefetch, False)
        self.tag = self.channel.basic_consume(
            queue,
            consumer_tag=f"tag.{uuid.uuid4().hex[:8]}",
            no_ack=no_ack,
            callback=lambda raw: self.messages.append(self.channel.message_to_python(raw)),
        )

    @property
    def bodies(self) -> list[Any]:
        return [message.payload for message in self.messages]

    def until(self, count: int) -> list[Any]:
        """Drain until there are this many."""
        ends_at = time.monotonic() + PATIENCE_SECONDS
        while len(self.messages) < count:
            assert time.monotonic() < ends_at, f"{len(self.messages)} of {count} messages came"
            with contextlib.suppress(TimeoutError):
                self.connection.drain_events(timeout=0.1)
        return self.messages

    def and_no_more(self, count: int, *, quiet_seconds: float = QUIET_SECONDS) -> None:
        """Drain until this many are there, and a moment longer: the next must not come."""
        self.until(count)
        with contextlib.suppress(TimeoutError):
            while True:
                self.connection.drain_events(timeout=quiet_seconds)
        assert len(self.messages) == count


class Child:
    """A process that speaks to the broker and writes lines about it."""

    def __init__(self, what: str, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.contract.children", what, *arguments],
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def lines(self, count: int) -> list[str]:
        """Its next lines; pytest's timeout ends a wait in vain."""
        assert self.process.stdout is not None
        return [self.process.stdout.readline().strip() for _ in range(count)]

    def finish(self) -> list[str]:
        """Tell it to end; returns what it had still to say."""
        said, _ = self.process.communicate(timeout=PATIENCE_SECONDS)
        return said.split()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        self.kill()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()
