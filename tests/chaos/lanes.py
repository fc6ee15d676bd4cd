"""The queues of every storm: how each is defined, and who serves it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.chaos.facts import Lane

LIMITED, RETRIED = "orders", "bills"
MAX_RUNNING = 3

BRIEFLY: Mapping[str, Any] = {"defer_seconds": 1.0, "defer_pause_seconds": 1.0}
"""What an action defers does not keep its workers from the rest for long."""

QUEUES: Mapping[str, Mapping[str, Any]] = {
    LIMITED: {"max_running": MAX_RUNNING, **BRIEFLY},
    RETRIED: {"retry_limit": 5, "prefetch_buffer": 2, **BRIEFLY},
}

_SERVED = (
    ("default", LIMITED, RETRIED),
    ("default", LIMITED, f"{RETRIED}:retry=1"),
    ("default", RETRIED),
)
"""By each worker in turn. Every worker serves the default queue: the older rules of the checker
count on each for it."""


def subscriptions(number: int, others: Sequence[str] = ()) -> str:
    """What the worker with this number, from 1, serves: queues, and these others, by commas."""
    return ",".join((*_SERVED[(number - 1) % len(_SERVED)], *others))


def served(workers: Sequence[str], others: Sequence[str] = ()) -> dict[str, Lane]:
    """What the checker has to know of each queue, where `w1` and so on serve them."""
    serves = {
        worker: [
            name.partition("=")[0]
            for name in subscriptions(int(worker.removeprefix("w")), others).split(",")
        ]
        for worker in workers
    }
    return {
        name: Lane(
            max_running=QUEUES.get(name, {}).get("max_running"),
            workers=frozenset(worker for worker in workers if name in serves[worker]),
            retry_workers=frozenset(w for w in workers if f"{name}:retry" in serves[w]),
        )
        for name in ("default", *QUEUES, *others)
    }
