"""The queue of bulk orders, and the messages in it."""

from __future__ import annotations

from uuid import UUID

from orchestrator.core import messages, topology
from orchestrator.core.messages import Message
from orchestrator.core.topology import QueueSpec

WORK_OFF, ORDER_IDS, ORDERED = "muster.bulk", "order_ids", "bulk.ordered"


def queue() -> QueueSpec:
    return topology.hot_queue(
        "bulk.orders.queue", routing_key=ORDERED, purpose="bulk orders that wait for an executor"
    )


def ordered(order_id: UUID) -> list[Message]:
    """Tell the executors of an order."""
    return messages.about_many(WORK_OFF, ORDERED, [order_id], listed=ORDER_IDS)
