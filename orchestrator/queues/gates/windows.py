"""The number of messages that a keeper takes ahead: AMQP's prefetch."""

from __future__ import annotations

import math
from datetime import datetime

from orchestrator.core.models import Worker
from orchestrator.queues.models import Gate, Keeper

MOST = 65_535
"""AMQP's prefetch count has 16 bits."""
RENEWED_FROM = 0.25
"""A consumer is renewed when its prefetch should differ by this part."""


def slots(names: list[str], *, now: datetime) -> dict[str, int]:
    """The slots with which workers serve each of these queues now, both lanes together."""
    found = dict.fromkeys(names, 0)
    workers = Worker.objects.reachable(now).values_list("capacity", "queues")
    for capacity, queues in workers:
        for name in names:
            lanes = [queues[lane] for lane in (name, f"{name}:retry") if lane in queues]
            if lanes:
                most = sum(capacity if limit is None else limit for limit in lanes)
                found[name] += min(capacity, most)
    return found


def keepers(broker: str, *, now: datetime) -> int:
    """The keepers that share the gates of a broker, this one among them."""
    return max(1, Keeper.objects.alive(now).filter(broker=broker).count())


def prefetch(gate: Gate, *, slots: int, keepers: int, batch_size: int) -> int:
    """The number of unacknowledged messages that a keeper has of a gate.

    With custody `result`, they are what runs and a buffer, shared by the keepers: the backlog stays
    in the broker. With custody `row`, they are only on their way to the database.
    """
    buffer = gate.queue.prefetch_buffer
    if gate.custody == Gate.Custody.ROW:
        return max(buffer, batch_size)
    return max(1, math.ceil((slots + buffer) / keepers))


def split(wanted: int) -> list[int]:
    """The prefetch of each consumer: more than one if it is more than AMQP can say."""
    full, rest = divmod(wanted, MOST)
    return [MOST] * full + ([rest] if rest else [])


def is_to_be_renewed(present: int, wanted: int) -> bool:
    """A changed prefetch reaches new consumers only (rabbitmq-server #11948), so small changes of a
    large one are left."""
    if present == wanted:
        return False
    return abs(wanted - present) >= max(1, RENEWED_FROM * present)
