"""Send messages, each batch with its confirms, on a connection of the calling thread.

`send` waits until the broker has confirmed a whole batch: for callers that acknowledge something
afterwards. `send_raw` is for programs that are not ours, also on other brokers: it says of each
message what the broker did with it. Who needs no confirm hands over to `relay`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Sequence

import structlog
from amqp.exceptions import ChannelError
from kombu.exceptions import OperationalError

from orchestrator.core import brokers, declarations, lanes, topology
from orchestrator.core.errors import Unavailable
from orchestrator.core.lanes import Fate, Lane, RawMessage
from orchestrator.core.messages import Message

log = structlog.get_logger(__name__)


class BrokerUnavailable(Unavailable):
    """The broker did not take the messages; the rows they tell of will be found without them."""

    kind = "broker-unavailable"
    title = "The broker did not answer"


def connect_soon() -> None:
    """Declare the common part in the background, so that it is there before the first message. For
    a process that only publishes; a broker that is away is no error."""
    threading.Thread(target=_declare_common, name="muster-declare", daemon=True).start()


def _declare_common() -> None:
    try:
        with brokers.connection() as link:
            brokers.ensure_connected(link)
            declarations.declare_on(link)
    except brokers.errors() as error:
        log.warning(
            "broker not reachable, nothing accepted waits for it", error=brokers.explain(error)
        )


def send(messages: Sequence[Message], *, are_posted: bool = False) -> list[Message]:
    """Publish a batch and wait for its confirmation; returns the messages for which there is no
    queue. `are_posted`: they were published on this thread's connection just now.

    Raises BrokerUnavailable after a second attempt on a new connection. The broker may still have
    accepted some messages: their receivers must be safe to run twice.
    """
    if not messages:
        return []
    try:
        fates = _deliver(
            [message.raw() for message in messages], brokers.DEFAULT, are_posted=are_posted
        )
    except brokers.errors() as error:
        raise BrokerUnavailable(
            f"{len(messages)} messages not sent: {brokers.explain(error)}"
        ) from error
    refused = next((fate.reason for fate in fates if fate.kind == lanes.REFUSED), None)
    if refused is not None:
        raise BrokerUnavailable(f"{len(messages)} messages not sent: {refused}")
    return [message for message, fate in zip(messages, fates, strict=True) if not fate.is_taken]


def send_raw(messages: Sequence[RawMessage], *, broker: str = brokers.DEFAULT) -> list[Fate]:
    """Publish a batch to a broker and wait once for its confirms; returns the fate of each message,
    in their order. What is not `taken` may be sent again.

    A message that makes RabbitMQ close the channel (no such exchange, no permission, too large, a
    user id that is another's) is found by halves and refused alone. Raises UnknownBroker, and
    BrokerUnavailable after a second attempt on a new connection: then nothing is known of any
    message, and a copy of each may have been taken.
    """
    if not messages:
        return []
    try:
        return _deliver(messages, broker)
    except ChannelError as error:
        if len(messages) == 1:
            return [Fate(lanes.REFUSED, str(error), is_final=True)]
    except brokers.errors() as error:
        raise BrokerUnavailable(
            f"{len(messages)} messages not sent: {brokers.explain(error, broker)}"
        ) from error
    half = len(messages) // 2
    return [
        *send_raw(messages[:half], broker=broker),
        *send_raw(messages[half:], broker=broker),
    ]


def _deliver(
    messages: Sequence[RawMessage], broker: str, *, are_posted: bool = False
) -> list[Fate]:
    """Publish on this thread's connection, and once more on a new one: the old one may just have
    been idle, and closed by the broker. Raises the errors of the broker's library."""
    try:
        lane = _lane(broker)
        return lane.confirmed() if are_posted else lane.send(messages)
    except brokers.errors():
        drop_lane(broker)
    try:
        return _lane(broker).send(messages)
    except brokers.errors():
        drop_lane(broker)
        raise


def make_whole(routing_keys: Iterable[str]) -> None:
    """Declare the queues of returned messages, with exchanges and bindings, as somebody has deleted
    one of them. Raises BrokerUnavailable, and TopologyDiffers.
    """
    specs = topology.needed_by(routing_keys)
    try:
        with brokers.connection() as link:
            declarations.declare(link, specs)
    except brokers.errors() as error:
        raise BrokerUnavailable(f"queues not declared: {brokers.explain(error)}") from error
    log.warning("queues declared again", queues=[spec.name for spec in specs])


_local = threading.local()


def _lane(broker: str = brokers.DEFAULT) -> Lane:
    """This thread's connection to a broker; a forked child never shares its parent's."""
    if getattr(_local, "pid", None) != os.getpid():
        _local.lanes, _local.pid = {}, os.getpid()
    if broker not in _local.lanes:
        _local.lanes[broker] = _open_lane(broker)
    return _local.lanes[broker]  # type: ignore[no-any-return]


def _open_lane(broker: str) -> Lane:
    link = brokers.connection(broker)
    try:
        brokers.ensure_connected(link)
        if broker == brokers.DEFAULT:
            declarations.declare_on(link)
    except ChannelError as error:  # a login or a declaration, and no message, was refused
        raise OperationalError(str(error)) from error
    return Lane(link)


def known_lane(broker: str = brokers.DEFAULT) -> Lane | None:
    """This thread's connection to a broker, if it has one."""
    lanes: dict[str, Lane] = getattr(_local, "lanes", {})
    return lanes.get(broker)


def drop_lane(broker: str = brokers.DEFAULT) -> None:
    """Forget the connection: after an error py-amqp can no longer match confirms to messages."""
    lane = getattr(_local, "lanes", {}).pop(broker, None)
    if lane is not None:
        try:
            lane.link.collect()
        except brokers.errors():
            log.debug("broker connection did not close cleanly", exc_info=True)
