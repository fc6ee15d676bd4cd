"""A client of gates that imports nothing of ours: pika, or kombu on the embedded broker."""

from __future__ import annotations

import base64
import gc
import json
import logging
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pika
from kombu import Connection
from kombu.transport import TRANSPORT_ALIASES

TRANSPORT_ALIASES["sqlitemq"] = "orchestrator.sqlitemq:Transport"

logging.getLogger("pika").setLevel(logging.WARNING)

PATIENCE_SECONDS = 180.0
POLL_SECONDS = 0.02


@dataclass
class Letter:
    """A message as a client gets it."""

    body: bytes
    headers: dict[str, Any]
    properties: dict[str, Any]

    @property
    def task(self) -> dict[str, Any]:
        members: dict[str, Any] = json.loads(self.body)
        return members

    @property
    def data(self) -> Any:
        return json.loads(base64.b64decode(self.task["taskData"]))

    @property
    def told(self) -> tuple[str, str]:
        return self.task["taskId"], self.task["taskStatus"]


def task_message(task_id: str, data: Any, classifier: str = "Echo", **more: Any) -> bytes:
    raw = data if isinstance(data, bytes) else json.dumps(data).encode()
    members = {
        "version": 3,
        "taskId": task_id,
        "taskClassifier": classifier,
        "taskApiVersion": 1,
        "taskData": base64.b64encode(raw).decode(),
        "taskStatus": "NEW_TASK",
        "context": {},
        **more,
    }
    return json.dumps(members).encode()


def encoded(data: Any) -> str:
    return base64.b64encode(json.dumps(data).encode()).decode()


def decoded(text: str) -> Any:
    return json.loads(base64.b64decode(text))


class Client:
    """Publishes with confirms, and gets one message at a time."""

    def publish(self, queue: str, body: bytes, headers: Any = None, **properties: Any) -> None:
        raise NotImplementedError

    def get(self, queue: str) -> Letter | None:
        raise NotImplementedError

    def depth(self, queue: str) -> int:
        raise NotImplementedError

    def delete(self, queue: str) -> None:
        raise NotImplementedError

    def declare(self, queue: str, kind: str) -> None:
        """Declare a queue as the gates of this kind do."""
        raise NotImplementedError

    def take(self, queue: str) -> bool:
        """Take a message and do not acknowledge it; returns False if there is none."""
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def wait(self, queue: str, *, within_seconds: float = PATIENCE_SECONDS) -> Letter:
        found: Letter = wait_until(
            lambda: self.get(queue), f"no message in {queue}", within_seconds
        )
        return found

    def collect(self, queue: str, number: int) -> list[Letter]:
        """Wait for so many messages."""
        return [self.wait(queue) for _ in range(number)]


class PikaClient(Client):
    def __init__(self, url: str) -> None:
        self.url = url
        self._connect()

    def _connect(self) -> None:
        parameters = pika.URLParameters(self.url)
        # pika answers only while it is called, and a test may look elsewhere for long
        parameters.heartbeat = 0
        self.link = pika.BlockingConnection(parameters)
        self.channel = self.link.channel()
        self.channel.confirm_delivery()

    def publish(self, queue: str, body: bytes, headers: Any = None, **properties: Any) -> None:
        self.channel.basic_publish(
            "",
            queue,
            body,
            pika.BasicProperties(delivery_mode=2, headers=headers or {}, **properties),
            mandatory=True,
        )

    def get(self, queue: str) -> Letter | None:
        try:
            method, properties, body = self.channel.basic_get(queue, auto_ack=True)
        except pika.exceptions.ConnectionClosedByBroker as closed:
            # a quorum queue that was declared a moment ago may have no leader yet
            if "noproc" not in closed.reply_text:
                raise
            self._connect()
            _collect_sockets()
            return None
        if method is None:
            return None
        given = {name: getattr(properties, name) for name in vars(pika.BasicProperties())}
        return Letter(body, dict(properties.headers or {}), given)

    def depth(self, queue: str) -> int:
        return int(self.channel.queue_declare(queue, passive=True).method.message_count)

    def delete(self, queue: str) -> None:
        self.channel.queue_delete(queue)

    def declare(self, queue: str, kind: str) -> None:
        self.channel.queue_declare(queue, durable=True, arguments={"x-queue-type": kind})

    def take(self, queue: str) -> bool:
        return self.channel.basic_get(queue)[0] is not None

    def close(self) -> None:
        if self.link.is_open:
            self.link.close()


def _collect_sockets() -> None:
    """Pika leaves the socket of a connection that the broker has closed to the garbage collector:
    whichever test runs then would fail."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


class KombuClient(Client):
    def __init__(self, url: str) -> None:
        self.link = Connection(url, transport_options={"confirm_publish": True})
        self.channel: Any = self.link.channel()

    def publish(self, queue: str, body: bytes, headers: Any = None, **properties: Any) -> None:
        message = self.channel.prepare_message(
            body,
            priority=properties.pop("priority", None),
            content_type=properties.pop("content_type", None),
            headers=headers or {},
            properties={"delivery_mode": 2, **properties},
        )
        self.channel.basic_publish(message, exchange="", routing_key=queue, mandatory=True)

    def get(self, queue: str) -> Letter | None:
        message = self.channel.basic_get(queue, no_ack=True)
        if message is None:
            return None
        body = message.body.encode() if isinstance(message.body, str) else bytes(message.body)
        return Letter(body, dict(message.headers or {}), dict(message.properties))

    def depth(self, queue: str) -> int:
        return int(self.channel.queue_declare(queue, passive=True).message_count)

    def delete(self, queue: str) -> None:
        self.channel.queue_delete(queue)

    def declare(self, queue: str, kind: str) -> None:
        arguments = {"x-queue-type": "classic"}
        self.channel.queue_declare(queue, durable=True, auto_delete=False, arguments=arguments)

    def take(self, queue: str) -> bool:
        return self.channel.basic_get(queue) is not None

    def close(self) -> None:
        self.link.release()


def wait_until(look: Callable[[], Any], what: str, within_seconds: float = PATIENCE_SECONDS) -> Any:
    ends_at = time.monotonic() + within_seconds
    while True:
        found = look()
        # pika compares its answers with anything, and fails
        if found is not None and found is not False:
            return found
        assert time.monotonic() < ends_at, f"after {within_seconds} s: {what}"
        time.sleep(POLL_SECONDS)
