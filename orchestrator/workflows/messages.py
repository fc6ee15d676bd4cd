"""The queue of requested tasks, and the message in it."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from orchestrator.core import messages, topology
from orchestrator.core.messages import Message
from orchestrator.core.topology import QueueSpec

ADVANCE = "muster.advance"
TASK_IDS = "task_ids"
REQUESTED = "task.requested"


def queue() -> QueueSpec:
    return topology.hot_queue(
        "tasks.queue",
        routing_key="task.#",
        purpose="tasks that were requested and want their first steps",
    )


def requested(task_ids: Sequence[UUID]) -> list[Message]:
    """Tell the executors that these tasks were requested."""
    return messages.about_many(ADVANCE, REQUESTED, task_ids, listed=TASK_IDS)
