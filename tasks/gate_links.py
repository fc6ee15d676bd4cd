"""Connections of a keeper: deliveries of gates, and news of ends."""

from __future__ import annotations

import contextlib
import json
import select
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

import structlog
from kombu import Connection

from orchestrator.core import brokers, messages, topology
from orchestrator.queues.gates import doors, intake, windows
from orchestrator.queues.gates.judging import Delivery
from orchestrator.queues.models import Gate

log = structlog.get_logger(__name__)

LOST_NEWS_PAUSE_SECONDS = 2.0


@dataclass(eq=False)
class Held:
    """A delivery that is not acknowledged yet."""

    channel: Any
    tag: int
    delivery: Delivery
    since: float = field(default_factory=time.monotonic)
    is_copy: bool = False
    """True if the message was published once more: it has an answer of its own, which is the
    same."""

    def ack(self) -> None:
        self.channel.basic_ack(self.tag)


class Input:
    """The consumers of one gate, on a channel of their own."""

    def __init__(self, link: Connection, gate: Gate) -> None:
        doors.declare(link, gate)
        self.gate = gate
        channel: Any = link.channel()
        self.channel = channel
        # a body is bytes, whatever encoding a client claims
        channel.auto_decode = False
        self.prefetch = 0
        self.tags: list[str] = []
        self.received: list[Held] = []
        self.postponed: list[Held] = []
        """The deliveries that no queue took, and that are tried again at the next look."""
        self.is_cancelled = False
        """True once the broker has cancelled a consumer: its queue was deleted."""

    def consume(self, prefetch: int) -> None:
        """Renew the consumers with this prefetch; 0 ends them. What was delivered stays."""
        for tag in self.tags:
            self.channel.basic_cancel(tag)
        self.tags, self.prefetch = [], prefetch
        for part in windows.split(prefetch):
            self.channel.basic_qos(0, part, False)
            for queue in doors.consumed(self.gate):
                tag = f"muster.{self.gate.queue.name}.{uuid4().hex[:12]}"
                self.channel.basic_consume(
                    queue, consumer_tag=tag, callback=self._take, on_cancel=self._cancelled
                )
                self.tags.append(tag)
        log.info("gate consumed", queue=self.gate.queue.name, prefetch=prefetch)

    def try_again(self) -> None:
        """Take in what was postponed."""
        self.received += self.postponed
        self.postponed = []

    def _take(self, message: Any) -> None:
        body = message.body.encode() if isinstance(message.body, str) else bytes(message.body)
        properties = dict(message.properties or {})
        headers = {
            # py-amqp leaves a name as bytes that is not UTF-8
            name.decode("utf-8", "ignore") if isinstance(name, bytes) else name: value
            for name, value in (properties.pop("application_headers", None) or {}).items()
        }
        info = message.delivery_info or {}
        delivery = intake.deliver(
            body, headers, properties, redelivered=bool(info.get("redelivered"))
        )
        self.received.append(Held(self.channel, message.delivery_tag, delivery))

    def _cancelled(self, tag: str) -> None:
        self.is_cancelled = True

    def close(self) -> None:
        with contextlib.suppress(*brokers.errors()):
            self.channel.close()


class News:
    """Ends of executions, as every executor with gates hears them. They are hints: those of a
    broken connection are lost, and the sweep finds what they were about."""

    def __init__(self, name: str, *, link: Connection | None) -> None:
        self.name = name
        self.link = link
        self.is_shared = link is not None
        self.ended: set[UUID] = set()
        self.retry_at = 0.0
        self.queue = ""
        self.channel: Any = None
        """The channel of its consumer, while it has one."""
        self.is_cancelled = False
        """True once the broker has cancelled the consumer: the queue was deleted."""

    def open(self) -> None:
        """Declare the queue and consume it, unless that is done. On a connection of its own, errors
        of the broker only mean that there is no news."""
        if self.channel is not None and not self.is_cancelled:
            return
        if self.is_shared:
            self._consume()
            return
        if time.monotonic() < self.retry_at:
            return
        try:
            if self.link is None:
                self.link = brokers.connection()
                brokers.ensure_connected(self.link)
            self._consume()
        except brokers.errors() as error:
            self._lose(error)

    def drain(self) -> bool:
        """Take what has come; returns True if there was anything."""
        if self.is_shared or self.link is None:
            return False
        try:
            return drain(self.link)
        except brokers.errors() as error:
            self._lose(error)
            return False

    def taken(self) -> set[UUID]:
        ended, self.ended = self.ended, set()
        return ended

    def close(self) -> None:
        if not self.is_shared and self.link is not None:
            with contextlib.suppress(*brokers.errors()):
                self.link.collect()
        self.link = self.channel = None

    def _consume(self) -> None:
        assert self.link is not None
        if self.channel is not None:
            self.channel.close()
        self.channel, self.is_cancelled = self.link.channel(), False
        self.queue = topology.told_queue(f"{self.name}.{uuid4().hex[:8]}")
        self.channel.queue_declare(
            self.queue,
            durable=False,
            exclusive=True,
            auto_delete=True,
            arguments={"x-max-length": doors.MOST_MESSAGES_HEARD},
        )
        self.channel.queue_bind(self.queue, topology.executions_exchange(), topology.COMPLETED)
        self.channel.basic_consume(
            self.queue, no_ack=True, callback=self._hear, on_cancel=self._cancelled
        )

    def _cancelled(self, tag: str) -> None:
        self.is_cancelled = True

    def _hear(self, message: Any) -> None:
        try:
            _, kwargs, _ = json.loads(message.body)
            self.ended.update(UUID(id) for id in kwargs[messages.EXECUTION_IDS])
        except messages.UNREADABLE as error:
            log.warning("unreadable news dropped", error=repr(error))

    def _lose(self, error: Exception) -> None:
        log.warning("no news of ends, the sweep finds them", error=repr(error))
        self.close()
        self.retry_at = time.monotonic() + LOST_NEWS_PAUSE_SECONDS


def drain(link: Connection) -> bool:
    """Handle what has come on this connection, without waiting; returns True if anything has."""
    came = False
    try:
        while True:
            brokers.drain_come(link)
            came = True
    except (TimeoutError, socket.timeout):  # noqa: UP041 - kombu's virtual transports
        return came


def wait(links: Sequence[Connection], *, seconds: float) -> None:
    """Wait until something comes on one of these connections; it may be handled already."""
    if seconds <= 0:
        return
    if len(links) == 1:
        with contextlib.suppress(TimeoutError, socket.timeout):
            links[0].drain_events(timeout=seconds)
        return
    connections: list[Any] = [link.connection for link in links]
    wakers = [each.waker for each in connections if hasattr(each, "waker")]
    sockets = [each.sock for each in connections if hasattr(each, "sock")]
    sockets += [waker.socket for waker in wakers if waker.socket is not None]
    # the embedded broker also has to be asked now and then
    select.select(sockets, [], [], min(seconds, 0.05) if wakers else seconds)
    for waker in wakers:
        waker.clear()
