"""The way from the broker's queues as they are to the topology: moving what must be redeclared."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from amqp.exceptions import NotFound, PreconditionFailed
from django.conf import settings
from kombu import Connection

from orchestrator.core import declarations, publisher, topology
from orchestrator.core.declarations import Finding
from orchestrator.core.errors import MusterError
from orchestrator.core.models import Worker
from orchestrator.core.topology import QueueSpec

EXPIRATION = "x-muster-expiration"
"""Where a message's own TTL waits while it is in a queue that must lose nothing."""


class BrokerUnreachable(MusterError):
    """The broker cannot be reached."""


class QueueInUse(MusterError):
    """A queue that is to be declared again has consumers."""


@dataclass(frozen=True)
class Moved:
    """One queue that was redeclared, and how many messages that carried over."""

    queue: str
    messages: int


@contextlib.contextmanager
def connected(*, confirm: bool = False) -> Iterator[Connection]:
    """A connection to the broker. Raises BrokerUnreachable, also when it is lost inside."""
    limit = settings.MUSTER.publish_timeout_seconds
    link = Connection(
        settings.BROKER_URL,
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
    except publisher.errors() as error:
        told = str(error) or repr(error)
        raise BrokerUnreachable(f"Broker {link.as_uri()}: {told.splitlines()[0]}") from None


def every_queue() -> list[QueueSpec]:
    """The shared queues, and those of all known workers."""
    ids = Worker.objects.order_by("pk").values_list("pk", flat=True)
    return [*topology.shared_queues(), *(spec for id in ids for spec in topology.worker_queues(id))]


# --- moving --------------------------------------------------------------------------------------


def migrate(
    link: Connection, specs: Iterable[QueueSpec], *, force: bool = False
) -> Iterator[Moved]:
    """Redeclare the queues whose arguments differ, with all their messages.

    A message is acknowledged in one queue once its copy is confirmed in the other, so killing
    this at any point loses none; running it again ends what was begun. A message may then be
    there twice, which every receiver is safe against. Raises QueueInUse unless `force`.
    """
    todo = []
    # dead letters first: where they go must be whole before anything else is moved
    for spec in sorted(specs, key=lambda spec: spec != topology.dead_letter_queue()):
        finding = declarations.inspect_queue(link, spec)
        begun = _count(link, _aside(spec)) is not None
        if finding.differences or begun:
            todo.append((spec, finding))
    in_use = [finding for _, finding in todo if finding.consumers]
    if in_use and not force:
        told = ", ".join(f"{finding.name} ({finding.consumers})" for finding in in_use)
        raise QueueInUse(f"Queues have consumers: {told}; stop them first, or use --force")
    for spec, finding in todo:
        yield _migrate(link, spec, finding, force=force)


def _migrate(link: Connection, spec: QueueSpec, finding: Finding, *, force: bool) -> Moved:
    aside = _aside(spec)
    with declarations.throw_away(link) as channel:
        topology.declare_exchanges(channel)
        # without TTL or length limit: what is set aside must not die there
        channel.queue_declare(aside, durable=True, auto_delete=False)
        if spec.exchange:
            # first the new binding, then the old: what arrives in between is there twice
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
        if not force and (_consumers(link, spec.name) or 0):
            raise QueueInUse(f"{spec.name} got a consumer meanwhile; stop it and run this again")
        _move(link, spec.name, aside)


def _move(link: Connection, source: str, target: str) -> int:
    """Carry every message over: confirmed there, then acknowledged here. Returns how many."""
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
            # the connection confirms: this returns when the broker has it
            channel.basic_publish(copy, exchange="", routing_key=target, mandatory=True)
            channel.basic_ack(message.delivery_tag)
            moved += 1
    return moved


ASIDE = ".migrating"


def _aside(spec: QueueSpec) -> str:
    return spec.name + ASIDE


def _count(link: Connection, name: str) -> int | None:
    """How many messages wait in a queue; None if there is none."""
    try:
        with declarations.throw_away(link) as channel:
            return int(channel.queue_declare(name, passive=True).message_count)
    except NotFound:
        return None


def _consumers(link: Connection, name: str) -> int | None:
    try:
        with declarations.throw_away(link) as channel:
            return int(channel.queue_declare(name, passive=True).consumer_count)
    except NotFound:
        return None


def _delete_if_empty(link: Connection, name: str, *, if_unused: bool) -> bool:
    try:
        with declarations.throw_away(link) as channel:
            channel.queue_delete(name, if_unused=if_unused, if_empty=True)
    except PreconditionFailed:
        return False
    return True
