"""Migration of the broker's queues to the topology: queues are declared again, messages moved."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from amqp.exceptions import NotFound, PreconditionFailed
from django.conf import settings
from kombu import Connection

from orchestrator.core import brokers, declarations, topology
from orchestrator.core.declarations import Finding
from orchestrator.core.errors import MusterError
from orchestrator.core.models import Worker
from orchestrator.core.topology import QueueSpec

EXPIRATION = "x-muster-expiration"
"""A header for a message's own TTL while it is in a queue that must lose nothing."""


class BrokerUnreachable(MusterError):
    """The broker cannot be reached."""


class QueueInUse(MusterError):
    """A queue that must be declared again has consumers."""


@dataclass(frozen=True)
class Moved:
    """A queue that was declared again, and the number of messages that were moved."""

    queue: str
    messages: int


@contextlib.contextmanager
def connected(*, confirm: bool = False) -> Iterator[Connection]:
    """Connect to the broker. Raises BrokerUnreachable, also when the connection is lost later."""
    limit = settings.MUSTER.publish_timeout_seconds
    link = Connection(
        settings.BROKER_URL,
        ssl=brokers.tls(),
        connect_timeout=limit,
        transport_options={
            "read_timeout": limit,
            "write_timeout": limit,
            "confirm_publish": confirm,
        },
    )
    try:
        with link:
            link.ensure_connection(max_retries=1, interval_start=0, timeout=max(1, int(limit)))
            yield link
    except brokers.errors() as error:
        raise BrokerUnreachable(f"Broker {brokers.explain(error)}") from None


def every_queue() -> list[QueueSpec]:
    """The shared queues, and those of all workers that are not retired."""
    ids = Worker.objects.known().order_by("pk").values_list("pk", flat=True)
    return [*topology.shared_queues(), *(spec for id in ids for spec in topology.worker_queues(id))]


# --- moving --------------------------------------------------------------------------------------


def migrate(
    link: Connection, specs: Iterable[QueueSpec], *, force: bool = False
) -> Iterator[Moved]:
    """Redeclare the queues whose arguments differ, and keep all their messages.

    A message is acknowledged in one queue once its copy is confirmed in the other. So a kill at
    any point loses none, and the next run completes the work. A message may then exist twice:
    every receiver is safe to run twice. Raises QueueInUse unless `force`.
    """
    todo = []
    # dead letters first: their queue must be right before other messages are moved
    for spec in sorted(specs, key=lambda spec: spec != topology.dead_letter_queue()):
        finding = declarations.inspect_queue(link, spec)
        started = _counted(link, _aside(spec)) is not None
        if finding.differences or started:
            todo.append((spec, finding))
    in_use = [finding for _, finding in todo if finding.consumers]
    if in_use and not force:
        names = ", ".join(f"{finding.name} ({finding.consumers})" for finding in in_use)
        raise QueueInUse(f"Queues have consumers: {names}; stop them first, or use --force")
    for spec, finding in todo:
        yield _migrate(link, spec, finding, force=force)


def _migrate(link: Connection, spec: QueueSpec, finding: Finding, *, force: bool) -> Moved:
    aside = _aside(spec)
    with declarations.throw_away(link) as channel:
        topology.declare_exchanges(channel)
        # without TTL or length limit: the messages must not die there
        channel.queue_declare(aside, durable=True, auto_delete=False)
        if spec.exchange:
            # first the new binding, then the old: messages in between exist twice
            channel.queue_bind(aside, spec.exchange, spec.routing_key)
    if finding.differences:
        _empty_and_delete(link, spec, aside, force=force)
    with declarations.throw_away(link) as channel:
        spec.queue()(channel).declare()
        if spec.exchange:
            channel.queue_unbind(aside, spec.exchange, spec.routing_key)
    moved = _move(link, aside, spec.name)
    while not _delete_if_empty(link, aside, if_unused=False):
        moved += _move(link, aside, spec.name)
    return Moved(spec.name, moved)


def _empty_and_delete(link: Connection, spec: QueueSpec, aside: str, *, force: bool) -> None:
    if spec.exchange:
        with declarations.throw_away(link) as channel:
            channel.queue_unbind(spec.name, spec.exchange, spec.routing_key)
    _move(link, spec.name, aside)
    while not _delete_if_empty(link, spec.name, if_unused=not force):
        counted = _counted(link, spec.name)
        if not force and counted is not None and counted.consumer_count:
            raise QueueInUse(f"{spec.name} has a consumer now; stop it and run this again")
        _move(link, spec.name, aside)


def _move(link: Connection, source: str, target: str) -> int:
    """Move every message: publish, wait for the confirmation, acknowledge. Returns how many."""
    moved = 0
    with declarations.throw_away(link) as channel:
        while (raw := channel.basic_get(source)) is not None:
            message = channel.message_to_python(raw)
            headers, properties = dict(message.headers or {}), dict(message.properties)
            if target.endswith(ASIDE):
                if expiration := properties.pop("expiration", None):
                    headers[EXPIRATION] = expiration
            elif expiration := headers.pop(EXPIRATION, None):
                properties["expiration"] = expiration
            for name in ("application_headers", "content_type", "content_encoding"):
                properties.pop(name, None)
            copy = channel.prepare_message(
                message.body,
                priority=properties.pop("priority", None),
                content_type=message.content_type,
                content_encoding=message.content_encoding,
                headers=headers,
                properties=properties,
            )
            # returns when the broker has confirmed it
            channel.basic_publish(copy, exchange="", routing_key=target, mandatory=True)
            channel.basic_ack(message.delivery_tag)
            moved += 1
    return moved


ASIDE = ".migrating"


def _aside(spec: QueueSpec) -> str:
    return spec.name + ASIDE


def _counted(link: Connection, name: str) -> Any:
    """The `message_count` and the `consumer_count` of a queue; None if there is no queue."""
    try:
        with declarations.throw_away(link) as channel:
            return channel.queue_declare(name, passive=True)
    except NotFound:
        return None


def _delete_if_empty(link: Connection, name: str, *, if_unused: bool) -> bool:
    try:
        with declarations.throw_away(link) as channel:
            channel.queue_delete(name, if_unused=if_unused, if_empty=True)
    except PreconditionFailed:
        return False
    return True
