"""An AMQP channel over the file: publish, consume and settle, with RabbitMQ's semantics."""

import itertools
import uuid
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from amqp.exceptions import (
    AMQPNotImplementedError,
    ChannelError,
    MessageNacked,
    PreconditionFailed,
    RecoverableConnectionError,
)
from kombu.message import Message

from orchestrator.sqlitemq import messages
from orchestrator.sqlitemq.declarations import Declarations
from orchestrator.sqlitemq.link import Link
from orchestrator.sqlitemq.store import Store

NO_LIMIT = 1_000_000


@dataclass(slots=True, eq=False)
class Consumer:
    tag: str
    row: int  # in the consumer table
    queue_id: int
    is_quorum: bool
    callback: Callable[[Message], object]
    on_cancel: Callable[[str], object] | None
    no_ack: bool
    prefetch: int
    unacked: int = 0


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message that this channel got and has not settled."""

    message_id: int
    consumer: Consumer | None


class Channel(Declarations):
    """Used by one thread at a time, except that any thread may settle messages."""

    def __init__(self, connection: Link, channel_id: int) -> None:
        self.connection = connection
        self.channel_id = channel_id
        self.closed = False
        self.consumers: dict[str, Consumer] = {}
        #: as in py-amqp: `basic_return`; after `confirm_select` `basic_ack` and `basic_nack`
        self.events: defaultdict[str, set[Callable[..., object]]] = defaultdict(set)
        self._unacked: OrderedDict[int, Delivery] = OrderedDict()
        self._delivery_tags = itertools.count(1)
        self._publish_tags: itertools.count[int] | None = None
        self._prefetch = 0
        self._consumer_prefetch = 0

    @property
    def is_open(self) -> bool:
        return not self.closed

    @property
    def store(self) -> Store:
        """The file. Raises RecoverableConnectionError if this channel can no longer use it."""
        if self.closed:
            raise RecoverableConnectionError("channel is closed")
        return self.connection.usable_store()

    def close(self) -> None:
        """Stop consuming, and give back unsettled messages."""
        if self.closed:
            return
        try:
            if self.connection.is_usable:
                for tag in list(self.consumers):
                    self.basic_cancel(tag)
                self.basic_recover(requeue=True)
        finally:
            self.closed = True
            self.consumers.clear()
            self._unacked.clear()
            self.connection.remove_channel(self)

    # ---- publishing ----

    def transaction(self) -> AbstractContextManager[object]:
        """Make everything inside, on this connection, one transaction of the file.

        For a publisher that would otherwise wait for the confirms of a batch: the end of the block
        confirms all of it, and an exception that leaves the block undoes all of it. A message
        without a queue raises inside, at its own `basic_publish`. All other writers wait meanwhile,
        so do nothing slow inside.
        """
        return self.store.transaction()

    def confirm_select(self, nowait: bool = False) -> None:
        """Have the handlers of `basic_ack` and `basic_nack` called when events are drained: for
        messages that were committed, and for those that were refused."""
        self._publish_tags = itertools.count(1)

    def prepare_message(
        self,
        body: str | bytes,
        priority: int | None = None,
        content_type: str | None = None,
        content_encoding: str | None = None,
        headers: dict[str, Any] | None = None,
        properties: dict[str, Any] | None = None,
    ) -> messages.Outgoing:
        every = {
            "content_type": content_type,
            "content_encoding": content_encoding,
            "priority": priority,
            **(properties or {}),
        }
        kept = {key: value for key, value in every.items() if value is not None}
        return messages.Outgoing(body, {**kept, "application_headers": headers or {}})

    def basic_publish(
        self,
        message: messages.Outgoing,
        exchange: str = "",
        routing_key: str = "",
        mandatory: bool = False,
        **_: object,
    ) -> None:
        """Publish a message; returns once it is committed.

        Raises NotFound without the exchange. If there is no queue for a `mandatory` message, the
        handlers of `basic_return` are called; without any, ChannelError 312 NO_ROUTE is raised.
        What a full queue refuses is confirmed by `basic_nack`; with kombu's option
        `confirm_publish`, MessageNacked is raised.
        """
        self.connection.maintain()  # there may be no consumer to do it
        message.exchange, message.routing_key = exchange or "", routing_key or ""
        published = messages.publish(self.store, message)
        if mandatory and not published.is_routed:
            self._return(message)
        if self._publish_tags is not None:
            tag = next(self._publish_tags)
            self.connection.confirm(self, tag, is_refused=published.is_refused)
        elif published.is_refused and self.connection.raises_refusals:
            raise MessageNacked("a full queue refused the message")

    def _return(self, message: messages.Outgoing) -> None:
        error = ChannelError("NO_ROUTE", (60, 50), "Basic.return", 312)
        if not self.events["basic_return"]:
            raise error
        for returned in list(self.events["basic_return"]):
            returned(error, message.exchange, message.routing_key, message)

    # ---- consuming ----

    def basic_qos(
        self, prefetch_size: int = 0, prefetch_count: int = 0, apply_global: bool = False
    ) -> None:
        """Set the prefetch limit as RabbitMQ does: global for the channel, else for each later
        consumer."""
        if apply_global:
            self._prefetch = prefetch_count
        else:
            self._consumer_prefetch = prefetch_count
        self.connection.look_again()

    def basic_consume(
        self,
        queue: str,
        consumer_tag: str = "",
        no_local: bool = False,
        no_ack: bool = False,
        exclusive: bool = False,
        nowait: bool = False,
        callback: Callable[[Message], object] | None = None,
        arguments: Mapping[str, Any] | None = None,
        on_cancel: Callable[[str], object] | None = None,
        **_: object,
    ) -> str:
        sig = ((60, 20), "Basic.consume")
        tag = consumer_tag or f"amq.ctag-{uuid.uuid4().hex}"
        address = self.connection.waker.address
        insert = "INSERT INTO consumer (queue_id, owner, address) VALUES (?, ?, ?)"
        with self.store.transaction() as db:
            consumed = self._queue(queue, *sig)
            if consumed.is_quorum and self._prefetch:
                raise AMQPNotImplementedError(
                    f"NOT_IMPLEMENTED - queue '{queue}' in vhost '/' does not support global qos",
                    *sig,
                )
            row = db.execute(insert, (consumed.id, self.connection.owner, address)).lastrowid
            self.store.topology_changed()
        self.consumers[tag] = Consumer(
            tag=tag,
            row=row or 0,
            queue_id=consumed.id,
            is_quorum=consumed.is_quorum,
            callback=callback or (lambda message: None),
            on_cancel=on_cancel,
            no_ack=no_ack,
            prefetch=self._consumer_prefetch,
        )
        if no_ack:
            self.no_ack_consumers = {*(self.no_ack_consumers or ()), tag}
        self.connection.look_again()
        return tag

    def basic_cancel(self, consumer_tag: str, **_: object) -> None:
        """Cancel a consumer; messages fetched for it but not delivered yet go back."""
        consumer = self.consumers.pop(consumer_tag, None)
        if consumer is None:
            return
        undelivered = self.connection.withdraw(consumer)
        with self.store.transaction() as db:
            self._requeue([tag for tag in undelivered if tag in self._unacked])
            messages.remove_consumer(self.store, db, consumer.row, consumer.queue_id)

    def room(self, consumer: Consumer) -> int:
        """The number of messages that the prefetch limits still allow."""
        if consumer.no_ack:
            return NO_LIMIT
        rooms = [NO_LIMIT]
        if self._prefetch:
            rooms.append(self._prefetch - len(self._unacked))
        if consumer.prefetch:
            rooms.append(consumer.prefetch - consumer.unacked)
        return min(rooms)

    def basic_get(self, queue: str, no_ack: bool = False, **_: object) -> Message | None:
        self.connection.maintain()
        source = self._queue(queue, (60, 70), "Basic.get")
        owner = self.connection.owner
        self.mark_used(source)
        if not messages.has_ready(self.store, source.id):
            return None
        with self.store.transaction() as db:
            taken = messages.take(db, source.id, owner=owner, limit=1, no_ack=no_ack)
            if not taken:
                return None
            return self.receive(taken[0], None, no_ack=no_ack, is_quorum=source.is_quorum)

    def receive(
        self,
        taken: messages.Taken,
        consumer: Consumer | None,
        *,
        no_ack: bool,
        is_quorum: bool,
    ) -> Message:
        """Give a taken message its delivery tag, and record it until it is settled."""
        tag = next(self._delivery_tags)
        if not no_ack:
            self._unacked[tag] = Delivery(taken.id, consumer)
            if consumer is not None:
                consumer.unacked += 1
        properties = taken.properties
        # measured with RabbitMQ 3.10: a first delivery has the header if it was asked for
        if is_quorum and (taken.returns or consumer is None):
            headers = properties.get("application_headers") or {}
            properties["application_headers"] = {**headers, "x-delivery-count": taken.returns}
        info = {
            **({"consumer_tag": consumer.tag} if consumer else {}),
            "delivery_tag": tag,
            "redelivered": taken.returns > 0,
            "exchange": taken.exchange,
            "routing_key": taken.routing_key,
        }
        return Message(
            body=taken.body,  # type: ignore[arg-type]  # bytes too, whatever the stubs say
            channel=self,
            delivery_tag=tag,  # type: ignore[arg-type]  # a number, as AMQP has it
            content_type=properties.get("content_type"),
            content_encoding=properties.get("content_encoding"),
            delivery_info=info,
            properties=properties,
            headers=properties.get("application_headers") or {},
        )

    def message_to_python(self, raw_message: Message) -> Message:
        return raw_message

    # ---- settling; any thread may do it ----

    def basic_ack(self, delivery_tag: int, multiple: bool = False) -> None:
        """Acknowledge a message; with `multiple` all up to this tag, in one transaction. Tag 0
        means all."""
        with self.store.transaction():
            settled = self._settle(delivery_tag, multiple)
            messages.ack(self.store, self.connection.owner, settled)

    def basic_reject(self, delivery_tag: int, requeue: bool) -> None:
        with self.store.transaction():
            if requeue:
                self._requeue([delivery_tag])
            else:
                settled = list(self._settle(delivery_tag, multiple=False))
                messages.reject(self.store, self.connection.owner, settled)

    def basic_recover(self, requeue: bool = False) -> None:
        """Give back everything unsettled; like RabbitMQ only with `requeue`."""
        if not requeue:
            raise NotImplementedError("basic.recover without requeue")
        with self.store.transaction():
            self._requeue(list(self._unacked))

    def _requeue(self, tags: list[int]) -> None:
        settled = [i for tag in tags for i in self._settle(tag, multiple=False)]
        messages.requeue(self.store, self.connection.owner, settled)

    def _settle(self, delivery_tag: int, multiple: bool) -> Iterator[int]:
        """Remove the deliveries from the record; yields the ids of their messages."""
        if multiple:
            tags = [tag for tag in self._unacked if tag <= delivery_tag or delivery_tag == 0]
        else:
            tags = [delivery_tag]
        for tag in tags:
            delivery = self._unacked.pop(tag, None)
            if delivery is None:
                raise PreconditionFailed(
                    f"PRECONDITION_FAILED - unknown delivery tag {tag}", (60, 80), "Basic.ack"
                )
            if delivery.consumer is not None:
                delivery.consumer.unacked -= 1
            self.connection.room_freed()
            yield delivery.message_id
