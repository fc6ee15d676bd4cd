"""A connection that publishes batches, and waits once for the confirms of each."""

from __future__ import annotations

import contextlib
import struct
import time
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from amqp.exceptions import FrameSyntaxError
from django.conf import settings
from kombu import Connection

PERSISTENT = 2
"""AMQP's `delivery_mode` of a message that survives a restart of the broker."""

TAKEN, RETURNED, REFUSED = "taken", "returned", "refused"

UNSENDABLE = (
    FrameSyntaxError,
    struct.error,
    TypeError,
    ValueError,
    OverflowError,
    RecursionError,
)
"""Errors of encoding a message that AMQP cannot carry; nothing of it was sent then."""


class Fate(NamedTuple):
    """The fate of a message at the broker.

    `taken`: confirmed. `returned`: it was mandatory, and there is no queue for it. `refused`: the
    broker confirmed negatively, as a full queue with `x-overflow: reject-publish` makes it do, or
    the message cannot be sent at all.
    """

    kind: str
    reason: str = ""
    is_final: bool = False
    """Another try has the same fate, as far as is known."""

    @property
    def is_taken(self) -> bool:
        return self.kind == TAKEN


Mark = tuple[str, str, str, str, bytes]
"""The properties that a returned message has in common with the one that was sent: exchange,
routing key, message id, correlation id, body. Messages with equal marks are returned in the order
they were sent in."""


@dataclass(frozen=True)
class RawMessage:
    """A message as AMQP has it: what is in it is the caller's.

    Properties have AMQP's names, such as `content_type`, `priority` and `message_id`; without a
    `delivery_mode` it is persistent. A mandatory one without a queue is returned, not dropped.
    """

    body: bytes
    routing_key: str
    exchange: str = ""
    headers: Mapping[str, Any] = field(default_factory=dict)
    properties: Mapping[str, Any] = field(default_factory=dict)
    mandatory: bool = True

    @property
    def mark(self) -> Mark:
        return _mark(self.exchange, self.routing_key, self.properties, self.body)


class Lane:
    """A connection with one channel in confirm mode. For one thread; after any error of the
    broker's library it is of no use, as confirms can no longer be matched to messages."""

    channel: Any
    """The channel of py-amqp, or of the embedded broker, which behaves the same."""

    def __init__(self, link: Connection) -> None:
        self.link = link
        self.channel = link.default_channel
        self.channel.confirm_select()
        self.channel.events["basic_ack"].add(self._on_ack)
        self.channel.events["basic_nack"].add(self._on_nack)
        self.channel.events["basic_return"].add(self._on_return)
        # the embedded broker commits a batch at once; RabbitMQ pipelines by itself
        self.one_commit = getattr(self.channel, "transaction", contextlib.nullcontext)
        self.last_tag = 0
        self.unconfirmed: dict[int, int] = {}
        """The position in the batch of each delivery tag that is not confirmed yet."""
        self.batch: Sequence[RawMessage] = ()
        self.fates: list[Fate] = []
        self.marked: dict[Mark, deque[int]] | None = None

    def send(self, messages: Sequence[RawMessage]) -> list[Fate]:
        """Publish a batch, wait for its confirms; returns the fate of each message, in their order.

        Raises the errors of the broker's library, TimeoutError among them if the broker stalls.
        """
        self.post(messages)
        return self.confirmed()

    def post(self, messages: Sequence[RawMessage]) -> None:
        """Publish a batch; `confirmed` comes next. Raises the errors of the broker's library."""
        self.batch, self.marked = messages, None
        self.fates = [Fate(TAKEN)] * len(messages)
        with self.one_commit():
            for position, message in enumerate(messages):
                self._publish(position, message)

    def confirmed(self) -> list[Fate]:
        """Wait for the confirms of the batch that was posted; returns as `send`, raises as
        `send`."""
        until = time.monotonic() + settings.MUSTER.publish_timeout_seconds
        while self.unconfirmed:
            self.link.drain_events(timeout=max(0.01, until - time.monotonic()))
        return self.fates

    def _publish(self, position: int, message: RawMessage) -> None:
        properties = {"delivery_mode": PERSISTENT, **message.properties}
        tag = self.last_tag + 1  # the broker counts the same way, from 1 on each channel
        self.unconfirmed[tag] = position
        try:
            prepared = self.channel.prepare_message(
                message.body,
                **{name: properties.pop(name, None) for name in ARGUMENTS},
                headers=dict(message.headers),
                properties=properties,
            )
            self.channel.basic_publish(
                prepared,
                exchange=message.exchange,
                routing_key=message.routing_key,
                mandatory=message.mandatory,
            )
        except UNSENDABLE as error:
            if not self.link.connected:  # the broker has closed it with such an error
                raise
            del self.unconfirmed[tag]
            self.fates[position] = Fate(REFUSED, f"AMQP cannot carry it: {error}", True)
        else:
            self.last_tag = tag

    def _settled(self, delivery_tag: int, multiple: bool) -> Iterable[int]:
        """Forget the tags that a confirm is about; returns their positions."""
        tags = [delivery_tag]
        if multiple:
            tags = [tag for tag in self.unconfirmed if tag <= delivery_tag]
        return [self.unconfirmed.pop(tag) for tag in tags if tag in self.unconfirmed]

    def _on_ack(self, delivery_tag: int, multiple: bool) -> None:
        self._settled(delivery_tag, multiple)

    def _on_nack(self, delivery_tag: int, multiple: bool) -> None:
        for position in self._settled(delivery_tag, multiple):
            self.fates[position] = Fate(REFUSED, "the broker refused (nack) it")

    def _on_return(self, error: Exception, exchange: str, routing_key: str, message: Any) -> None:
        if self.marked is None:  # built for a batch with returns alone, which are rare
            self.marked = defaultdict(deque)
            for position, sent in enumerate(self.batch):
                if sent.mandatory:
                    self.marked[sent.mark].append(position)
        alike = self.marked[_mark(exchange, routing_key, message.properties, message.body)]
        if alike:
            where = f"exchange {exchange!r}, routing key {routing_key!r}"
            self.fates[alike.popleft()] = Fate(RETURNED, f"no queue for it: {where}", True)


ARGUMENTS = ("content_type", "content_encoding", "priority")
"""Properties that `prepare_message` has arguments of its own for."""
IDS = ("message_id", "correlation_id")


def _mark(exchange: str, routing_key: str, properties: Mapping[str, Any], body: Any) -> Mark:
    content = body.encode() if isinstance(body, str) else bytes(body)
    message_id, correlation_id = (str(properties.get(name) or "") for name in IDS)
    return exchange, routing_key, message_id, correlation_id, content
