"""Exchanges and queues of the broker compared with the topology: inspect, describe, declare.

AMQP cannot query a queue's arguments. Declaring it with the wanted ones either succeeds or closes
the channel with a 406 that names the first difference; declaring it again with the value found
names the next. Only queues that exist, as a passive declaration shows, are checked in this way:
declaring a missing one would create it. Bindings cannot be queried at all (but see
`management.broker_listing`); `declare` creates them.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import structlog
from amqp.exceptions import AccessRefused, NotFound, PreconditionFailed, ResourceLocked
from kombu import Connection

from orchestrator.core import topology
from orchestrator.core.errors import MusterError
from orchestrator.core.topology import QueueSpec
from orchestrator.core.words import Kind

log = structlog.get_logger(__name__)

DIFFERENCE = re.compile(
    r"inequivalent arg '(?P<argument>[^']+)' for (?:queue|exchange) .*?: "
    r"received (?P<received>.+?) but current is (?P<found>.+)$",
    re.DOTALL,
)
VALUE = re.compile(r"^(?:the value )?'(?P<value>.*?)'(?: of type '(?P<type>\w+)')?$", re.DOTALL)


AWAY = "is down or inaccessible"
"""In RabbitMQ's answer, a 404, to who declares a durable classic queue whose node is down."""

REMEDY = "Stop who consumes them, then: manage.py topology migrate"


class TopologyDiffers(MusterError):
    """The broker has a queue or an exchange with other arguments than are wanted."""


class UnclearRefusal(TopologyDiffers):
    """The broker refused a declaration and did not say which argument differs."""


AS_DECLARED = "as declared"
NO_CONSUMER = "no consumer"
KINDS = {
    AS_DECLARED: Kind.SUCCESS,
    "differs": Kind.DANGER,
    "missing": Kind.WARNING,
    "unbound": Kind.DANGER,
    "foreign binding": Kind.WARNING,
    "policy": Kind.WARNING,
    NO_CONSUMER: Kind.WARNING,
}
"""Kinds of the states of a finding."""


@dataclass(frozen=True)
class Difference:
    """One argument whose value in the broker differs from the topology."""

    argument: str
    wanted: Any
    found: Any


@dataclass(frozen=True)
class Problem:
    """The fault of a queue or an exchange besides its arguments, and what to do."""

    state: str
    what: str
    remedy: str


@dataclass
class Finding:
    """The state of one queue or exchange in the broker."""

    kind: str
    name: str
    owner: str = ""
    is_missing: bool = False
    differences: list[Difference] = field(default_factory=list)
    messages: int = 0
    consumers: int = 0
    problems: list[Problem] = field(default_factory=list)

    @property
    def state(self) -> str:
        if self.is_missing:
            return "missing"
        if self.differences:
            return "differs"
        return self.problems[0].state if self.problems else AS_DECLARED


def declare(link: Connection, specs: Iterable[QueueSpec]) -> None:
    """Do as `declare_on`. Raises TopologyDiffers, which lists all differences."""
    wanted = list(specs)
    try:
        declare_on(link, wanted)
    except PreconditionFailed as refused:
        differences = describe(_inspect_declared(link, wanted))
        raise TopologyDiffers(f"{differences or refused.reply_text}\n{REMEDY}") from None


def _inspect_declared(link: Connection, wanted: Sequence[QueueSpec]) -> list[Finding]:
    """Inspect what `declare_on` declares: to compare is to declare, and who may not declare the
    common part is refused there."""
    if is_restricted.is_set():
        return [inspect_queue(link, spec) for spec in wanted]
    return inspect(link, {spec.name: spec for spec in [*topology.common(), *wanted]}.values())


def declare_on(link: Connection, specs: Iterable[QueueSpec] = ()) -> None:
    """Declare the common part and these queues, with their bindings.

    Where each service has a user of its own, only executors may declare the common part. Who is
    refused once looks from then on whether it is there, and the broker's log is not filled. The
    dead letter queue may be away with its node of a cluster: what would die there is lost, and its
    rows are found without it. Raises amqp's PreconditionFailed, AccessRefused, and NotFound.
    """
    wanted = list(specs)
    try:
        _declare_on(link, wanted)
        are_letters_lost.clear()
    except NotFound as missing:
        if not is_away(missing):
            raise
        _declare_on(link, wanted, with_common=False)
        if not are_letters_lost.is_set():
            are_letters_lost.set()
            log.warning("no dead letters are kept: their queue is away", error=missing.reply_text)
    _announce(wanted)


def _declare_on(link: Connection, wanted: list[QueueSpec], *, with_common: bool = True) -> None:
    if not is_restricted.is_set():
        try:
            with throw_away(link) as channel:
                topology.declare(channel, wanted, with_common=with_common)
            return
        except AccessRefused as refused:
            is_restricted.set()
            log.info("executors declare what this user may not", refused=refused.reply_text)
    _require_common(link, with_queues=with_common)
    with throw_away(link) as channel:
        for spec in wanted:
            spec.queue()(channel).declare()


def _require_common(link: Connection, *, with_queues: bool) -> None:
    """Look whether the common part is there, as far as this user may look: RabbitMQ 4.3 refuses
    that for what it has no right to. Raises NotFound."""
    for name in topology.names_of_common(with_queues=with_queues):
        if name in hidden:
            continue
        try:
            with throw_away(link) as channel:
                topology.look(channel, name)
        except AccessRefused:
            hidden.add(name)


def declare_present(link: Connection, specs: Iterable[QueueSpec]) -> list[QueueSpec]:
    """Do as `declare` with those of these queues that are not away with their node of a cluster;
    returns them."""
    wanted = list(specs)
    if _are_declared(link, wanted):
        return wanted
    return [spec for spec in wanted if _are_declared(link, [spec])]


def _are_declared(link: Connection, specs: list[QueueSpec]) -> bool:
    """Declare these queues; returns False if one of them is away with its node."""
    try:
        declare(link, specs)
    except NotFound as missing:
        if not is_away(missing):
            raise
        return False
    return True


def is_away(missing: NotFound) -> bool:
    """Return True for a queue that exists, on a node of the broker's cluster that is down. It can
    be neither declared nor consumed until the node is back."""
    return AWAY in str(missing.reply_text)


def _announce(specs: Sequence[QueueSpec]) -> None:
    """Log what is set up for this process, once for each queue: it is declared again and again."""
    names = dict.fromkeys(spec.name for spec in [*topology.common(), *specs])
    new = [name for name in names if name not in announced]
    if new:
        announced.update(new)
        log.info("infrastructure setup", queues=new, exchanges=list(topology.exchange_purposes()))


announced: set[str] = set()
"""The queues that this process has declared and logged."""

is_restricted = threading.Event()
"""Set when the broker refused the common part to this process's user."""

hidden: set[str] = set()
"""Names of what this process's user may not look at. Asked again, they fill the broker's log."""

are_letters_lost = threading.Event()
"""Set while the dead letter queue is away, which is logged once."""


def describe(findings: Iterable[Finding]) -> str:
    """List all differences, a line for each: name, argument, wanted and found value."""
    return "\n".join(
        f"{finding.kind} {finding.name}: {difference.argument}: "
        f"wanted {_shown(difference.wanted)}, found {_shown(difference.found)}"
        for finding in findings
        for difference in finding.differences
    )


def _shown(value: Any) -> str:
    return "none" if value is None else str(value)


def inspect(link: Connection, specs: Iterable[QueueSpec]) -> list[Finding]:
    """Inspect the exchanges and these queues in the broker. Changes nothing."""
    exchanges = [_exchange(link, name) for name in topology.exchange_purposes()]
    return exchanges + [inspect_queue(link, spec) for spec in specs]


def inspect_queue(link: Connection, spec: QueueSpec) -> Finding:
    """Inspect this queue in the broker. Changes nothing."""
    finding = Finding("queue", spec.name, spec.owner)
    try:
        with throw_away(link) as channel:
            declared = channel.queue_declare(spec.name, passive=True)
            finding.messages, finding.consumers = declared.message_count, declared.consumer_count
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
        with throw_away(link) as channel:
            channel.exchange_declare(name, kind, passive=True)
    except NotFound:
        finding.is_missing = True
        return finding
    except PreconditionFailed:
        pass  # the embedded broker compares even in a passive declaration
    wanted = {"type": kind, "durable": True, "auto_delete": False, "arguments": {}}

    def declare(channel: Any, asked: dict[str, Any]) -> None:
        channel.exchange_declare(name, **asked)

    finding.differences = _differences(link, declare, wanted)
    return finding


def _differences(
    link: Connection, declare: Callable[[Any, dict[str, Any]], None], wanted: dict[str, Any]
) -> list[Difference]:
    """Declare until the broker agrees, adopting one existing value after the other."""
    asked = wanted | {"arguments": dict(wanted["arguments"])}
    differences: dict[str, Difference] = {}
    while True:
        try:
            with throw_away(link) as channel:
                declare(channel, asked)
            return list(differences.values())
        except PreconditionFailed as error:
            match = DIFFERENCE.search(str(error.reply_text))
            if match is None or match["argument"] in differences:
                raise UnclearRefusal(str(error.reply_text)) from None
            argument, existing = match["argument"], _value(match["found"])
        place = asked if argument in asked else asked["arguments"]
        differences[argument] = Difference(argument, place.get(argument), existing)
        if existing is None:
            place.pop(argument, None)
        else:
            place[argument] = existing


def _value(text: str) -> Any:
    """Parse a value as the broker writes it: `none`, `'true'`,
    `the value '7' of type 'signedint'`."""
    match = VALUE.match(text.strip().rstrip("."))
    if match is None:
        return None
    value = match["value"]
    if value in ("true", "false"):
        return value == "true"
    is_text = match["type"] in ("longstr", "binary") or not value.lstrip("-").isdigit()
    return value if is_text else int(value)


@contextlib.contextmanager
def throw_away(link: Connection) -> Iterator[Any]:
    """A channel that a refusal may close."""
    channel: Any = link.channel()
    try:
        yield channel
    finally:
        if channel.is_open:
            channel.close()
