"""Depths of queues as the broker has them, and the metrics of them: asked with little patience.

The messages of workers' queues are not among the metrics: those are the executions that are
`scheduled`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, NamedTuple

import structlog
from amqp.exceptions import AccessRefused, NotFound

from orchestrator.core import brokers, declarations, topology
from orchestrator.core.metrics.gauges import Gauge

log = structlog.get_logger(__name__)

PATIENCE_SECONDS = 2.0
"""A scrape that waits for longer for a broker may be given up by Prometheus as a whole."""


BROKER_UP = Gauge("muster_broker_up", "1 if the broker answers, otherwise 0.")
MESSAGES = Gauge("muster_queue_messages", "Messages that wait in a shared queue.", "queue")
CONSUMERS = Gauge("muster_queue_consumers", "Consumers of a shared queue.", "queue")
DLQ_DEPTH = Gauge("muster_dlq_depth", "Dead letters that wait for their drain.")
METRICS = (BROKER_UP, MESSAGES, CONSUMERS, DLQ_DEPTH)


class Depth(NamedTuple):
    """The depth of a queue, as the broker says it."""

    ready: int
    """Messages that no consumer has taken yet."""
    consumers: int


def families(now: datetime) -> Iterator[Any]:
    """The messages that are ready in each shared queue, and its consumers. Without an answer of the
    broker there are none."""
    found = _asked()
    yield BROKER_UP.of(float(found is not None))
    queues = found or {}
    yield MESSAGES.by({name: depth.ready for name, depth in queues.items()})
    yield CONSUMERS.by({name: depth.consumers for name, depth in queues.items()})
    dead = topology.dead_letter_queue().name
    yield DLQ_DEPTH.by({"": queues[dead].ready} if dead in queues else {})


def _asked() -> dict[str, Depth] | None:
    """The depths of the shared queues that exist; None without an answer."""
    try:
        return ask(spec.name for spec in topology.shared_queues())
    except brokers.errors() as error:
        log.info("broker not asked for its queues", error=brokers.explain(error))
        return None


def ask(names: Iterable[str]) -> dict[str, Depth]:
    """The depths of those of the queues that exist and that this user may look at. Raises the
    errors of the broker's library."""
    with brokers.connection(limit_seconds=PATIENCE_SECONDS) as link:
        link.ensure_connection(max_retries=1, interval_start=0, timeout=int(PATIENCE_SECONDS))
        return {name: found for name in names if (found := _ask(link, name))}


def _ask(link: Any, queue: str) -> Depth | None:
    """The depth of a queue; None if it does not exist, or this user may not look at it."""
    try:
        with declarations.throw_away(link) as channel:
            found = channel.queue_declare(queue, passive=True)
    except (NotFound, AccessRefused):
        return None
    return Depth(found.message_count, found.consumer_count)
