"""kombu's transport: connections, the wait for messages, and the event loop of a Celery worker."""

import os
import socket
import sqlite3
import time
import weakref
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import kombu
from amqp.exceptions import (
    ChannelError,
    ConnectionError,
    ConsumerCancelled,
    RecoverableChannelError,
    RecoverableConnectionError,
    ResourceError,
)
from kombu.message import Message
from kombu.transport import base

from orchestrator.sqlitemq import messages, store
from orchestrator.sqlitemq.channel import Channel, Consumer
from orchestrator.sqlitemq.declarations import EXCHANGE_TYPES
from orchestrator.sqlitemq.wake import Waker

#: for events that wake no consumer: expiry, a publisher killed right after its commit
POLL_SECONDS = 0.05
POLL_SECONDS_UNWOKEN = 0.01
FETCH_LIMIT = 200
CHANNEL_MAX = 2047


@dataclass(slots=True)
class Confirms:
    """Tags of publishes that are not reported yet."""

    committed_up_to: int = 0
    refused: list[int] = field(default_factory=list)


class Connection:
    """One owner in the file: its end releases its messages and its exclusive queues."""

    def __init__(self, client: kombu.Connection, path: str) -> None:
        self.client = client
        self.pid = os.getpid()
        self.channels: dict[int, Channel] = {}
        self._store, self.owner = store.connect(path)
        self.waker = Waker()
        self._generation = self._store.generation
        self._fetched: deque[tuple[Channel, Consumer, Message]] = deque()
        self._confirmed: dict[Channel, Confirms] = {}
        self._starved = False
        self._seen: tuple[int, int] | None = None
        self._topology_version = -1
        self._closed = False
        self._abandon = weakref.finalize(self, _abandon, self._store, self.owner, self.waker)
        self._abandon.atexit = False

    @property
    def is_usable(self) -> bool:
        ours = self.pid == os.getpid() and self._generation == self._store.generation
        return ours and not self._closed and not self._store.is_broken

    @property
    def is_closed(self) -> bool:
        return self._closed

    def usable_store(self) -> store.Store:
        """Raises RecoverableConnectionError once closed, in a forked child, or if the file broke"""
        if not self.is_usable:
            raise RecoverableConnectionError("connection to the broker file is closed")
        return self._store

    def close(self) -> None:
        if self._closed:
            return
        try:
            for channel in list(self.channels.values()):
                channel.close()
            if self.is_usable:
                messages.release_owner(self._store, self.owner)
        finally:
            self._closed = True
            self._fetched.clear()
            if self._abandon.detach() and self.pid == os.getpid():
                self.waker.close()
                if self._generation == self._store.generation:
                    store.disconnect(self._store, self.owner)

    # ---- channels ----

    def channel(self) -> Channel:
        self.usable_store()
        for channel_id in range(1, CHANNEL_MAX + 1):
            if channel_id not in self.channels:
                opened = self.channels[channel_id] = Channel(self, channel_id)
                return opened
        raise ResourceError(f"No free channel ids, channel_max={CHANNEL_MAX}", (20, 10))

    def remove_channel(self, channel: Channel) -> None:
        self.channels.pop(channel.channel_id, None)
        self._fetched = deque(item for item in self._fetched if item[0] is not channel)

    # ---- confirms ----

    @property
    def raises_refusals(self) -> bool:
        """True if who publishes without `confirm_select` is told of a refusal by an exception."""
        return bool((self.client.transport_options or {}).get("confirm_publish"))

    def confirm(self, channel: Channel, tag: int, *, is_refused: bool) -> None:
        """Note that the publish of this tag is committed, or refused; the next drain reports it."""
        confirms = self._confirmed.setdefault(channel, Confirms())
        if is_refused:
            confirms.refused.append(tag)
        else:
            confirms.committed_up_to = tag

    def _tell_confirmed(self) -> None:
        """Report the refused ones first: then one ack speaks for all that are left."""
        confirmed, self._confirmed = self._confirmed, {}
        for channel, confirms in confirmed.items():
            for tag in confirms.refused:
                for handler in list(channel.events["basic_nack"]):
                    handler(tag, False)
            if confirms.committed_up_to:
                for handler in list(channel.events["basic_ack"]):
                    handler(confirms.committed_up_to, True)

    # ---- receiving ----

    def look_again(self) -> None:
        """Look at all queues again, after a consumer or a limit has changed."""
        self._seen = None

    def room_freed(self) -> None:
        """Note that a full prefetch window has room. Call inside the transaction that settles a
        message."""
        if self._starved:
            self._starved = False
            self._store.wake([self.waker.address])

    def maintain(self) -> None:
        messages.maintain(self.usable_store())

    def deliver_one(self) -> bool:
        """Hand one message to its consumer; returns False if there is none."""
        if self._confirmed:
            self._tell_confirmed()
            return True
        if not self._fetched and not self._fetch():
            return False
        _, consumer, message = self._fetched.popleft()
        consumer.callback(message)
        return True

    def deliver_fetched(self) -> bool:
        """Hand over all messages of one look at the file; returns False if there are none."""
        delivered = self.deliver_one()
        while self._fetched:
            self.deliver_one()
        return delivered

    def withdraw(self, consumer: Consumer) -> list[Any]:
        """Take back the messages fetched for a consumer; returns their delivery tags."""
        tags = [message.delivery_tag for _, c, message in self._fetched if c is consumer]
        self._fetched = deque(item for item in self._fetched if item[1] is not consumer)
        return tags

    def has_news(self) -> bool:
        """Return True if it is worth looking at the queues: something was written since the last
        look."""
        self.maintain()
        return bool(self._fetched or self._confirmed) or self._store.changes() != self._seen

    def _fetch(self) -> bool:
        """Take as many messages as the limits allow from every queue, in one transaction."""
        self.maintain()
        changes = self._store.changes()
        if changes == self._seen:
            return False
        self._check_consumers()
        consuming = [(ch, c) for ch in self.channels.values() for c in ch.consumers.values()]
        hungry = [(ch, c) for ch, c in consuming if ch.room(c) > 0]
        self._starved = len(hungry) < len(consuming)
        wanted = [(ch, c) for ch, c in hungry if messages.has_ready(self._store, c.queue_id)]
        if wanted:
            with self._store.transaction() as db:
                for channel, consumer in wanted:
                    limit = min(channel.room(consumer), FETCH_LIMIT)
                    if limit <= 0:  # an earlier consumer has filled the channel
                        continue
                    taken = messages.take(
                        db,
                        consumer.queue_id,
                        owner=self.owner,
                        limit=limit,
                        no_ack=consumer.no_ack,
                    )
                    for each in taken:
                        message = channel.receive(
                            each, consumer, no_ack=consumer.no_ack, is_quorum=consumer.is_quorum
                        )
                        self._fetched.append((channel, consumer, message))
        if not self._fetched:
            self._seen = changes
        return bool(self._fetched)

    def _check_consumers(self) -> None:
        """Cancel the consumers of deleted queues, as RabbitMQ does."""
        topology = self._store.topology()
        if topology.version == self._topology_version:
            return
        self._topology_version = topology.version
        for channel in self.channels.values():
            for consumer in list(channel.consumers.values()):
                if consumer.queue_id in topology.queues_by_id:
                    continue
                del channel.consumers[consumer.tag]
                if consumer.on_cancel is None:
                    raise ConsumerCancelled(consumer.tag, (60, 30), "Basic.cancel")
                consumer.on_cancel(consumer.tag)


def _abandon(abandoned: store.Store, owner: int, waker: Waker) -> None:
    """Mark a connection that was not closed, so that the next sweep gives back its messages.

    The garbage collector may run in the middle of a transaction, so nothing is given back here.
    """
    if abandoned.pid == os.getpid():
        abandoned.abandoned.append(owner)
        waker.close()


class Transport(base.Transport):
    """`sqlitemq:////absolute/path.db` or `sqlitemq:///relative/path.db`."""

    #: It behaves like AMQP 0-9-1, and Celery turns on gossip, mingle and topic events by this name.
    driver_type = "amqp"
    driver_name = "sqlitemq"
    can_parse_url = True

    connection_errors = (ConnectionError, OSError)
    channel_errors = (ChannelError,)
    recoverable_connection_errors = (RecoverableConnectionError, OSError)
    recoverable_channel_errors = (RecoverableChannelError,)

    implements = base.Transport.implements.extend(
        asynchronous=True, exchange_type=EXCHANGE_TYPES, heartbeats=False
    )

    def __init__(self, client: kombu.Connection, **kwargs: Any) -> None:
        super().__init__(client, **kwargs)
        options = client.transport_options or {}
        self.polling_interval: float | None = options.get("polling_interval")

    def driver_version(self) -> str:
        return sqlite3.sqlite_version

    def as_uri(self, uri: str, include_password: bool = False, mask: str = "**") -> str:
        return uri

    def qos_semantics_matches_spec(self, connection: Connection) -> bool:
        return False  # RabbitMQ's semantics of prefetch, see `Channel.basic_qos`

    # ---- connections ----

    def establish_connection(self) -> Connection:
        client = self.client
        if client is None:
            raise RecoverableConnectionError("the kombu connection was released")
        return Connection(client, path_from_url(client.hostname or ""))

    def verify_connection(self, connection: Connection) -> bool:
        return connection.is_usable

    def close_connection(self, connection: Connection) -> None:
        connection.close()

    def _collect(self, connection: Connection | None) -> None:
        """Drop a connection that failed, or that a forked child inherited, for kombu."""
        if connection is not None:
            try:
                connection.close()
            except self.connection_errors:
                return  # its messages are given back when its lock is found free

    def create_channel(self, connection: Connection) -> Channel:
        return connection.channel()

    def close_channel(self, channel: Channel) -> None:
        channel.close()

    # ---- receiving ----

    def drain_events(
        self, connection: Connection, timeout: float | None = None, **_: object
    ) -> None:
        """Deliver one message. Raises TimeoutError if none comes within `timeout` seconds."""
        until = None if timeout is None else time.monotonic() + timeout
        while not connection.deliver_one():
            wait_seconds = self._poll_seconds(connection)
            if until is not None:
                wait_seconds = min(wait_seconds, until - time.monotonic())
                if wait_seconds <= 0:
                    raise socket.timeout("timed out")  # noqa: UP041 - the name kombu documents
            connection.waker.wait(wait_seconds)

    def register_with_event_loop(self, connection: Connection, loop: Any) -> None:
        """Deliver when woken, and also poll periodically."""
        if connection.waker.socket is not None:
            loop.add_reader(connection.waker.socket, self.on_readable, connection, loop)
        self._poll_later(connection, loop)

    def unregister_from_event_loop(self, connection: Connection, loop: Any) -> None:
        if connection.waker.socket is not None:
            loop.remove_reader(connection.waker.socket)

    def on_readable(self, connection: Connection, loop: Any) -> None:
        connection.waker.clear()
        self._deliver(connection, loop)

    def _deliver(self, connection: Connection, loop: Any) -> None:
        if connection.is_usable and connection.deliver_fetched():
            # there may be more, but the loop's other work comes first
            self._deliver_soon(connection, loop)

    def _deliver_soon(self, connection: Connection, loop: Any) -> None:
        """Deliver in the next turn of the loop. Not by `call_soon`: a nested call of it would wait
        for a whole poll."""
        if connection.waker.socket is not None:
            connection.waker.wake()
        else:
            loop.call_soon(self._deliver, connection, loop)

    def _poll_later(self, connection: Connection, loop: Any) -> None:
        loop.call_later(self._poll_seconds(connection), self._poll, connection, loop)

    def _poll(self, connection: Connection, loop: Any) -> None:
        if connection.is_closed:  # a timer may outlive its connection
            return
        self._poll_later(connection, loop)
        if connection.has_news():
            # not from here: the loop logs and swallows exceptions in a timer
            self._deliver_soon(connection, loop)

    def _poll_seconds(self, connection: Connection) -> float:
        if self.polling_interval is not None:
            return self.polling_interval
        return POLL_SECONDS if connection.waker.socket is not None else POLL_SECONDS_UNWOKEN


def path_from_url(url: str) -> str:
    """The path of the file that a `sqlitemq://` URL names."""
    path = url.removeprefix("sqlitemq://")
    if path == url or not path.startswith("/") or len(path) < 2:
        raise ValueError(
            f"broker URL {url!r}: expected sqlitemq:////absolute/path.db or sqlitemq:///relative.db"
        )
    return os.path.abspath(path[1:])
