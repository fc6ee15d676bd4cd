"""The broker's queues against the topology: look, declare, and move what must be redeclared.

AMQP has no question for a queue's arguments. Declaring it with the wanted ones either succeeds
or closes the channel with a 406 that names the first difference; taking over what was found and
declaring again names the next. Only queues that exist, which a passive declaration tells, are
asked in this way: declaring a missing one would make it. Bindings cannot be asked for at all;
`apply` makes them.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from amqp.exceptions import NotFound, PreconditionFailed, ResourceLocked
from django.conf import settings
from kombu import Connection

from orchestrator import publisher, topology
from orchestrator.errors import MusterError
from orchestrator.models import Worker
from orchestrator.topology import QueueSpec

DIFFERENCE = re.compile(
    r"inequivalent arg '(?P<argument>[^']+)' for (?:queue|exchange) .*?: "
    r"received (?P<received>.+?) but current is (?P<found>.+)$",
    re.DOTALL,
)
VALUE = re.compile(r"^(?:the value )?'(?P<value>.*?)'(?: of type '(?P<type>\w+)')?$", re.DOTALL)
EXPIRATION = "x-muster-expiration"
"""Where a message's own TTL waits while it is in a queue that must lose nothing."""


class BrokerUnreachable(MusterError):
    """The broker cannot be reached."""


class QueueInUse(MusterError):
    """A queue that shall be redeclared has consumers."""


class UnclearRefusal(MusterError):
    """The broker refused a declaration and did not say which argument differs."""


@dataclass(frozen=True)
class Difference:
    """One thing that the broker has otherwise than the topology wants it."""

    argument: str
    wanted: Any
    found: Any


@dataclass
class Finding:
    """What the broker has of one queue or exchange."""

    kind: str
    name: str
    owner: str = ""
    is_missing: bool = False
    differences: list[Difference] = field(default_factory=list)
    messages: int = 0
    consumers: int = 0

    @property
    def state(self) -> str:
        if self.is_missing:
            return "missing"
        return "differs" if self.differences else "as declared"


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


def inspect(link: Connection, specs: Iterable[QueueSpec]) -> list[Finding]:
    """What the broker has of the exchanges and of these queues. Changes nothing."""
    exchanges = [_exchange(link, name) for name in topology.exchange_purposes()]
    return exchanges + [inspect_queue(link, spec) for spec in specs]


def inspect_queue(link: Connection, spec: QueueSpec) -> Finding:
    """What the broker has of this queue."""
    finding = Finding("queue", spec.name, spec.owner)
    try:
        with _throw_away(link) as channel:
            there = channel.queue_declare(spec.name, passive=True)
            finding.messages, finding.consumers = there.message_count, there.consumer_count
    except NotFound:
        finding.is_missing = True
        return finding
    except ResourceLocked:
        finding.differences.append(Difference("exclusive", False, True))
        return finding
    wanted = {"durable": True, "auto_delete": False, "arguments": dict(spec.arguments)}

    def declare(channel: Any, asked: dict[str, Any]) -> None:
        channel.queue_declare(spec.name, **asked)

    finding.differences = _differences(link, declare, wanted)
    return finding


def _exchange(link: Connection, name: str) -> Finding:
    kind, _ = topology.exchange_purposes()[name]
    finding = Finding("exchange", name)
    try:
        with _throw_away(link) as channel:
            channel.exchange_declare(name, kind, passive=True)
    except NotFound:
        finding.is_missing = True
        return finding
    except PreconditionFailed:
        pass  # the embedded broker compares also when it is only asked
    wanted = {"type": kind, "durable": True, "auto_delete": False, "arguments": {}}

    def declare(channel: Any, asked: dict[str, Any]) -> None:
        channel.exchange_declare(name, **asked)

    finding.differences = _differences(link, declare, wanted)
    return finding


def _differences(
    link: Connection, declare: Callable[[Any, dict[str, Any]], None], wanted: dict[str, Any]
) -> list[Difference]:
    """Declare until the broker agrees, taking over one found value after the other."""
    asked = wanted | {"arguments": dict(wanted["arguments"])}
    differences: dict[str, Difference] = {}
    while True:
        try:
            with _throw_away(link) as channel:
                declare(channel, asked)
            return list(differences.values())
        except PreconditionFailed as error:
            match = DIFFERENCE.search(str(error.reply_text))
            if match is None or match["argument"] in differences:
                raise UnclearRefusal(str(error.reply_text)) from None
            argument, found = match["argument"], _value(match["found"])
        place = asked if argument in asked else asked["arguments"]
        differences[argument] = Difference(argument, place.get(argument), found)
        if found is None:
            place.pop(argument, None)
        else:
            place[argument] = found


def _value(text: str) -> Any:
    """A value as the broker writes it: `none`, `'true'`, `the value '7' of type 'signedint'`."""
    match = VALUE.match(text.strip().rstrip("."))
    if match is None:
        return None
    value = match["value"]
    if value in ("true", "false"):
        return value == "true"
    is_text = match["type"] in ("longstr", "binary") or not value.lstrip("-").isdigit()
    return value if is_text else int(value)


@contextlib.contextmanager
def _throw_away(link: Connection) -> Iterator[Any]:
    """A channel that a refusal may close."""
    channel: Any = link.channel()
    try:
        yield channel
    finally:
        if channel.is_open:
            channel.close()


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
    for spec in specs:
        finding = inspect_queue(link, spec)
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
    with _throw_away(link) as channel:
        topology.declare(channel, [])
        # without TTL or length limit: what is set aside must not die there
        channel.queue_declare(aside, durable=True, auto_delete=False)
        if spec.exchange:
            # first the new binding, then the old: what arrives in between is there twice
            channel.queue_bind(aside, spec.exchange, spec.routing_key)
    if finding.differences:
        _empty_and_delete(link, spec, aside, force=force)
    with _throw_away(link) as channel:
        topology.declare(channel, [spec])
        if spec.exchange:
            channel.queue_unbind(aside, spec.exchange, spec.routing_key)
    moved = _move(link, aside, spec.name)
    while not _delete_if_empty(link, aside, if_unused=False):
        moved += _move(link, aside, spec.name)
    return Moved(spec.name, moved)


def _empty_and_delete(link: Connection, spec: QueueSpec, aside: str, *, force: bool) -> None:
    if spec.exchange:
        with _throw_away(link) as channel:
            channel.queue_unbind(spec.name, spec.exchange, spec.routing_key)
    _move(link, spec.name, aside)
    while not _delete_if_empty(link, spec.name, if_unused=not force):
        if not force and (_consumers(link, spec.name) or 0):
            raise QueueInUse(f"{spec.name} got a consumer meanwhile; stop it and run this again")
        _move(link, spec.name, aside)


def _move(link: Connection, source: str, target: str) -> int:
    """Carry every message over: confirmed there, then acknowledged here. Returns how many."""
    moved = 0
    with _throw_away(link) as channel:
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
        with _throw_away(link) as channel:
            return int(channel.queue_declare(name, passive=True).message_count)
    except NotFound:
        return None


def _consumers(link: Connection, name: str) -> int | None:
    try:
        with _throw_away(link) as channel:
            return int(channel.queue_declare(name, passive=True).consumer_count)
    except NotFound:
        return None


def _delete_if_empty(link: Connection, name: str, *, if_unused: bool) -> bool:
    try:
        with _throw_away(link) as channel:
            channel.queue_delete(name, if_unused=if_unused, if_empty=True)
    except PreconditionFailed:
        return False
    return True
