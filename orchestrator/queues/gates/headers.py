"""AMQP headers of task messages: their names, and how they are read and carried over.

The names that begin with `x-caf-` are those of CAF's worker framework, whose clients and workers
may share the queues of a gate.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from amqp.serialization import dumps

from orchestrator.core import lanes
from orchestrator.core.json_values import is_whole

RETRY = "x-caf-worker-retry"
"""The number of starts that were lost before."""
RETRY_LIMIT = "x-caf-worker-retry-limit"
"""The limit that applied. It is written for people, and never read: a changed limit applies at
once."""
FORMER_RETRY_LIMIT = "x-caf-worker-retry-lmit"
"""The name that CAF's documentation has for it. Not carried over."""
REJECTED = "x-caf-worker-rejected"
"""The header that says why a message lies in the rejected queue."""
OFFLOADED = "x-caf-payload-offloading"
"""The beginning of the headers of a message whose data lies elsewhere."""
DELIVERY_COUNT = "x-delivery-count"
"""Written by a quorum queue: how often it has delivered the message before."""
EXECUTION, ATTEMPT, REASON = "x-muster-execution-id", "x-muster-attempt", "x-muster-reason"

INVALID, EXCEEDED = "TASKMESSAGE_INVALID", "RETRIES_EXCEEDED"
"""The values of REJECTED."""

OURS = frozenset({RETRY, RETRY_LIMIT, FORMER_RETRY_LIMIT, REJECTED, EXECUTION, ATTEMPT, REASON})
OF_THE_BROKER = (
    "x-death",
    "x-first-death-",
    "x-last-death-",
    DELIVERY_COUNT,
    "x-acquired-count",
    "x-received-from",
)
"""Prefixes of headers with the past of a message in one broker: they would be wrong in a copy."""

MOST_TRIES = 2**31 - 1

MOST_BYTES = 120_000
"""Of all headers of a copy. With the properties they are one frame, and whoever sends one of more
than 128 KiB (RabbitMQ's `frame_max`) loses the connection, with all that was sent beside it."""


def tries_of(value: Any) -> int | None:
    """Read a retry header: an integer, or its decimal text, as CAF writes it. None if it is neither
    or out of range."""
    if isinstance(value, bytes):
        value = value.decode("ascii", "replace")
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 10:
        value = int(value)
    return value if is_whole(value) and 0 <= value <= MOST_TRIES else None


def delivered_before(headers: Mapping[str, Any]) -> int:
    """The number of times that a quorum queue has delivered the message before; 0 if it does not
    say."""
    count = headers.get(DELIVERY_COUNT)
    return count if is_whole(count) and 0 <= count <= MOST_TRIES else 0


def carried(headers: Mapping[str, Any]) -> dict[str, Any]:
    """Headers for a copy of a message: all, but for ours, those of the broker, and what there is no
    room for."""
    return _sendable(
        {
            name: value
            for name, value in headers.items()
            if name not in OURS and not name.startswith(OF_THE_BROKER)
        }
    )


def carried_to_answer(headers: Mapping[str, Any]) -> dict[str, Any]:
    """Headers for an answer: those of applications, which by custom begin with `x-`."""
    return carried({name: value for name, value in headers.items() if name.startswith("x-")})


def _sendable(headers: Mapping[str, Any]) -> dict[str, Any]:
    """These headers without those that AMQP cannot carry, and those beyond MOST_BYTES. What came
    in bytes may be longer as text."""
    sendable: dict[str, Any] = {}
    left = MOST_BYTES
    for name, value in headers.items():
        try:
            size = len(dumps("F", ({name: value},)))
        except lanes.UNSENDABLE:
            continue
        if size <= left:
            sendable[name] = value
            left -= size
    return sendable
