"""The queues of automation, and the messages in them."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from orchestrator.core import messages, topology
from orchestrator.core.messages import Message
from orchestrator.core.topology import QueueSpec

MATCH, EVENT_IDS, RECORDED = "muster.match", "event_ids", "event.created"
ENFORCE, ENFORCEMENT_IDS, CREATED = "muster.enforce", "enforcement_ids", "enforcement.created"


def events_queue() -> QueueSpec:
    return topology.hot_queue(
        "events.queue",
        exchange=topology.events_exchange(),
        routing_key="event.#",
        purpose="events that were recorded and want the rules to be asked",
    )


def enforcements_queue() -> QueueSpec:
    return topology.hot_queue(
        "enforcements.queue",
        routing_key="enforcement.#",
        purpose="answers of rules that want an execution",
    )


def recorded(event_ids: Sequence[UUID]) -> list[Message]:
    """Tell the executors that these events were recorded."""
    return messages.about_many(
        MATCH, RECORDED, event_ids, listed=EVENT_IDS, exchange=topology.events_exchange()
    )


def created(enforcement_ids: Sequence[UUID]) -> list[Message]:
    """Tell the executors that rules matched."""
    return messages.about_many(ENFORCE, CREATED, enforcement_ids, listed=ENFORCEMENT_IDS)


def status_queue() -> QueueSpec:
    return topology.hot_queue(
        "execution.status.queue",
        routing_key=topology.STATUS_CHANGED,
        purpose="executions whose status changed, while a rule waits for that",
    )
