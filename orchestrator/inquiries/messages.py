"""The queue of inquiries, and the messages in it."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from orchestrator.core import messages, topology
from orchestrator.core.messages import Message
from orchestrator.core.topology import QueueSpec

ANSWERED, INQUIRY_IDS, RESPONDED = "muster.answered", "inquiry_ids", "inquiry.responded"


def queue() -> QueueSpec:
    return topology.hot_queue(
        "inquiry.responses.queue",
        routing_key=RESPONDED,
        purpose="inquiries that ended: what they held up goes on",
    )


def ended(inquiry_ids: Sequence[UUID]) -> list[Message]:
    """Tell the executors that these inquiries ended."""
    return messages.about_many(ANSWERED, RESPONDED, inquiry_ids, listed=INQUIRY_IDS)
