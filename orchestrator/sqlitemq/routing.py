"""The declared topology of the broker, and the queues that a routing key reaches."""

import json
import re
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from amqp.exceptions import PreconditionFailed

Arguments = Mapping[str, Any]

ROUTES_REMEMBERED = 10_000

CLASSIC, QUORUM = "classic", "quorum"
DROP_HEAD, REJECT, REJECT_AND_BURY = "drop-head", "reject-publish", "reject-publish-dlx"

# the refused method, as AMQP errors name it
EXCHANGE_DECLARE = ((40, 10), "Exchange.declare")
QUEUE_DECLARE = ((50, 10), "Queue.declare")
DECLARE = {"exchange": EXCHANGE_DECLARE, "queue": QUEUE_DECLARE}


@dataclass(frozen=True, slots=True)
class Exchange:
    name: str
    type: str
    durable: bool
    auto_delete: bool
    arguments: Arguments


@dataclass(frozen=True, slots=True)
class Queue:
    id: int
    name: str
    durable: bool
    exclusive: bool
    auto_delete: bool
    owner: int | None
    arguments: Arguments
    #: where its consumers wait to be woken, see `wake.py`
    addresses: tuple[str, ...]

    @property
    def ttl_ms(self) -> int | None:
        return self.arguments.get("x-message-ttl")

    @property
    def max_length(self) -> int | None:
        return self.arguments.get("x-max-length")

    @property
    def overflow(self) -> str:
        """The behaviour of a full queue: drop its head, or refuse what is published."""
        return str(self.arguments.get("x-overflow", DROP_HEAD))

    @property
    def max_priority(self) -> int:
        return int(self.arguments.get("x-max-priority", 0))

    @property
    def is_quorum(self) -> bool:
        return _type_of(self.arguments) == QUORUM

    @property
    def delivery_limit(self) -> int | None:
        """The number of times that a message may come back before it is dead-lettered; None: for
        ever."""
        return self.arguments.get("x-delivery-limit")

    @property
    def dead_letter_exchange(self) -> str | None:
        return self.arguments.get("x-dead-letter-exchange")

    @property
    def dead_letter_routing_key(self) -> str | None:
        return self.arguments.get("x-dead-letter-routing-key")


@dataclass(slots=True)
class Topology:
    """All declarations of one version; replaced as a whole when the version changes."""

    version: int
    exchanges: dict[str, Exchange] = field(default_factory=dict)
    queues: dict[str, Queue] = field(default_factory=dict)
    queues_by_id: dict[int, Queue] = field(default_factory=dict)
    bindings: dict[str, list[tuple[str, Queue]]] = field(default_factory=dict)
    routes: dict[tuple[str, str], tuple[Queue, ...]] = field(default_factory=dict)

    def route(self, exchange: str, routing_key: str) -> tuple[Queue, ...]:
        """The queues that a message reaches; none if the exchange does not exist."""
        key = (exchange, routing_key)
        queues = self.routes.get(key)
        if queues is None:
            # routing keys may contain an endless number of ids
            if len(self.routes) >= ROUTES_REMEMBERED:
                self.routes.clear()
            queues = self.routes[key] = tuple(self._match(exchange, routing_key))
        return queues

    def _match(self, exchange: str, routing_key: str) -> list[Queue]:
        if not exchange:
            queue = self.queues.get(routing_key)
            return [queue] if queue else []
        declared = self.exchanges.get(exchange)
        if declared is None:
            return []
        bound = self.bindings.get(exchange, [])
        # a queue that is bound twice still gets one copy
        matched = {q.id: q for key, q in bound if _matches(declared.type, key, routing_key)}
        alternate = declared.arguments.get("alternate-exchange")
        if not matched and alternate and alternate != exchange:
            return self._match(alternate, routing_key)
        return list(matched.values())


def load(db: sqlite3.Connection, version: int) -> Topology:
    """Read all declarations. A few thousand queues take some milliseconds, once for each change."""
    topology = Topology(version)
    addresses: dict[int, list[str]] = {}
    for queue_id, address in db.execute("SELECT queue_id, address FROM consumer"):
        if address:
            addresses.setdefault(queue_id, []).append(address)
    for name, kind, durable, auto_delete, arguments in db.execute(
        "SELECT name, type, durable, auto_delete, arguments FROM exchange"
    ):
        topology.exchanges[name] = Exchange(
            name, kind, bool(durable), bool(auto_delete), json.loads(arguments)
        )
    for row in db.execute(
        "SELECT id, name, durable, exclusive, auto_delete, owner, arguments FROM queue"
    ):
        queue_id, name, durable, exclusive, auto_delete, owner, arguments = row
        waiting = tuple(dict.fromkeys(addresses.get(queue_id, ())))
        queue = Queue(
            queue_id,
            name,
            bool(durable),
            bool(exclusive),
            bool(auto_delete),
            owner,
            json.loads(arguments),
            waiting,
        )
        topology.queues[name] = topology.queues_by_id[queue_id] = queue
    for exchange, routing_key, queue_id in db.execute(
        "SELECT exchange, routing_key, queue_id FROM binding"
    ):
        bound = topology.queues_by_id.get(queue_id)
        if bound is not None:
            topology.bindings.setdefault(exchange, []).append((routing_key, bound))
    return topology


def _matches(exchange_type: str, binding_key: str, routing_key: str) -> bool:
    if exchange_type == "fanout":
        return True
    if exchange_type == "topic":
        words = f".{routing_key}" if routing_key else ""
        return topic_pattern(binding_key).fullmatch(words) is not None
    return binding_key == routing_key


@lru_cache(maxsize=4096)
def topic_pattern(binding_key: str) -> re.Pattern[str]:
    """Compile a binding key: `*` is one word, `#` none or more. Matches keys with a dot before each
    word."""
    wildcards = {"*": r"\.[^.]*", "#": r"(?:\.[^.]*)*"}
    words = binding_key.split(".") if binding_key else []
    return re.compile("".join(wildcards.get(w, rf"\.{re.escape(w)}") for w in words), re.DOTALL)


# ---- "inequivalent arg": RabbitMQ's wording, because people search for it ----


def check_field(kind: str, name: str, what: str, received: object, current: object) -> None:
    """Raise 406 unless the two are equal; for `durable`, `type` and `auto_delete`."""
    if received != current:
        raise PreconditionFailed(
            f"PRECONDITION_FAILED - inequivalent arg '{what}' for {kind} '{name}' in vhost '/': "
            f"received '{_plain(received)}' but current is '{_plain(current)}'",
            *DECLARE[kind],
        )


def check_arguments(kind: str, name: str, received: Arguments, current: Arguments) -> None:
    """Raise 406 for the first argument that differs, naming it and both values."""
    for key in sorted({*received, *current}):
        ours, theirs = received.get(key), current.get(key)
        if ours == theirs and type(ours) is type(theirs):
            continue
        if key == "x-queue-type" and _type_of(received) == _type_of(current):
            continue  # classic is what a queue without a type is
        if key in received and key in current:
            check_field(kind, name, key, ours, theirs)
        raise PreconditionFailed(
            f"PRECONDITION_FAILED - inequivalent arg '{key}' for {kind} '{name}' in vhost '/': "
            f"received {_described(received, key)} but current is {_described(current, key)}",
            *DECLARE[kind],
        )


NUMBERS = {
    "x-message-ttl": (0, None),
    "x-max-length": (0, None),
    "x-expires": (1, None),
    "x-max-priority": (0, 255),
    "x-delivery-limit": (None, None),
}
"""Arguments that are whole numbers, with the least and the most that they may be."""
TEXT = ("x-dead-letter-exchange", "x-dead-letter-routing-key")
CHOICES = {
    "x-queue-type": (CLASSIC, QUORUM),
    "x-overflow": (DROP_HEAD, REJECT, REJECT_AND_BURY),
}
UNKNOWN_TO = {
    CLASSIC: ("x-delivery-limit", "x-dead-letter-strategy"),
    QUORUM: ("x-max-priority", "x-queue-mode"),
}


def check_valid(
    queue: str,
    arguments: Arguments,
    *,
    durable: bool = True,
    exclusive: bool = False,
    auto_delete: bool = False,
) -> None:
    """Raise 406 for what RabbitMQ would refuse too: an argument of the wrong type or value, or what
    a quorum queue cannot be."""
    for key, value in arguments.items():
        _check_value(queue, key, value)
    kind = _type_of(arguments)
    for key in UNKNOWN_TO[kind]:
        if key in arguments:
            _refuse(queue, key, f" of queue type rabbit_{kind}_queue")
    if kind == QUORUM:
        for is_so, what in (
            (not durable, "non-durable"),
            (auto_delete, "auto-delete"),
            (exclusive, "exclusive-owner"),
        ):
            if is_so:
                _refuse(queue, what, kind="property")
    if "x-dead-letter-routing-key" in arguments and "x-dead-letter-exchange" not in arguments:
        _refuse(queue, "x-dead-letter-routing-key", ": routing key without an exchange")


def _check_value(queue: str, key: str, value: object) -> None:
    if key in NUMBERS:
        least, most = NUMBERS[key]
        if not isinstance(value, int) or isinstance(value, bool):
            _refuse(queue, key, f": expected integer, got {_amqp_type(value)}")
        elif least is not None and value < least:
            _refuse(queue, key, f": {value} is less than {least}")
        elif most is not None and value > most:
            _refuse(queue, key, f": {{max_value_exceeded,{value}}}")
    elif key in TEXT and not isinstance(value, str):
        _refuse(queue, key, f": expected string, got {_amqp_type(value)}")
    elif key in CHOICES and value not in CHOICES[key]:
        _refuse(queue, key, f": unsupported value '{value}'")


def _type_of(arguments: Arguments) -> str:
    return str(arguments.get("x-queue-type", CLASSIC))


def _refuse(queue: str, what: str, why: str = "", *, kind: str = "arg") -> None:
    raise PreconditionFailed(
        f"PRECONDITION_FAILED - invalid {kind} '{what}' for queue '{queue}' in vhost '/'{why}",
        *QUEUE_DECLARE,
    )


def _described(arguments: Arguments, key: str) -> str:
    if key not in arguments:
        return "none"
    value = arguments[key]
    return f"the value '{_plain(value)}' of type '{_amqp_type(value)}'"


def _plain(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _amqp_type(value: object) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "signedint" if -(2**31) <= value < 2**31 else "long"
    return {float: "double", dict: "table", list: "array"}.get(type(value), "longstr")
