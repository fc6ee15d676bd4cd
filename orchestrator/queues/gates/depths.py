"""The depths of the queues of a gate, as its broker says: asked when somebody looks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import structlog
from amqp.exceptions import AccessRefused, NotFound

from orchestrator.core import brokers, declarations
from orchestrator.core.brokers import UnknownBroker
from orchestrator.queues.gates import doors
from orchestrator.queues.models import Gate

log = structlog.get_logger(__name__)

PATIENCE_SECONDS = 2.0


@dataclass(frozen=True)
class Depth:
    """A queue of a gate. Without numbers, it does not exist, or may not be looked at."""

    purpose: str
    queue: str
    messages: int | None = None
    consumers: int | None = None


def asked(gate: Gate) -> list[Depth] | None:
    """The queues of a gate; None if its broker does not answer soon."""
    try:
        with brokers.connection(gate.broker, limit_seconds=PATIENCE_SECONDS) as link:
            link.ensure_connection(max_retries=1, interval_start=0, timeout=int(PATIENCE_SECONDS))
            return [_depth(link, purpose, name) for purpose, name in doors.named(gate).items()]
    except UnknownBroker:
        return None
    except brokers.errors() as error:
        log.info("broker not asked for the queues of a gate", error=repr(error))
        return None


def _depth(link: Any, purpose: str, queue: str) -> Depth:
    try:
        with declarations.throw_away(link) as channel:
            found = channel.queue_declare(queue, passive=True)
    except (NotFound, AccessRefused):
        return Depth(purpose, queue)
    return Depth(purpose, queue, found.message_count, found.consumer_count)
