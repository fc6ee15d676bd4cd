"""The seam for queues: what core asks of them when it accepts and places executions.

`orchestrator.queues` fills this seam in its `AppConfig.ready`. While nobody does, there is only the
default queue, and a request that names another one is refused. Work of the default queue asks
nothing here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

DEFAULT = "default"
"""The queue of all executions that name none: their column is empty."""

NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")
"""A queue's name: no colon, with which the name of its retry lane ends, and no capitals."""

NAME_EXPECTED = "at most 100 of a-z, 0-9, _, . and -, a letter or digit first"

RETRY_SUFFIX = ":retry"


@dataclass(frozen=True, kw_only=True)
class QueueTerms:
    """A queue, as core needs it: whether it takes and starts work, its limits and its defaults."""

    name: str
    refusal: str = ""
    """The reason why it accepts nothing; empty if it accepts."""
    is_paused: bool = False
    action_ref: str = ""
    """The action of requests that name none; empty if they must."""
    priority: int = 0
    deadline_seconds: float | None = None
    timeout_seconds: float | None = None
    retry_limit: int | None = None
    """Attempts after the first; None for the retry policy of each action."""
    prefetch_buffer: int = 1
    """Executions sent to a worker beyond the slots of its subscription."""
    max_running: int | None = None
    """The most that workers hold at once, over all of them."""
    defer_seconds: float | None = None
    """The first wait of an execution whose action said "not now"; None for the setting's."""
    defer_pause_seconds: float | None = None
    """For so long its worker then takes nothing of the queue; None for the setting's."""
    health_check: str = ""
    """A callable of `MUSTER_QUEUE_HEALTH_CHECKS` that ends such a pause as soon as it passes."""


class Queues(Protocol):
    """Knows the queues that are in use: not the retired ones."""

    def terms(self, names: Collection[str] | None = None) -> Mapping[str, QueueTerms]:
        """Read these queues, or all of them, as they are now, by name; the unknown are left out."""
        ...

    def hold(self, names: Collection[str]) -> None:
        """Wait until no other transaction holds one of these, and hold them until the present one
        ends. Who starts work of a queue with a limit holds it first, counts, and then writes."""
        ...


class NoQueues:
    """An installation with the default queue alone."""

    def terms(self, names: Collection[str] | None = None) -> Mapping[str, QueueTerms]:
        return {}

    def hold(self, names: Collection[str]) -> None:
        return


_make: Callable[[], Queues] = NoQueues


def fill(make: Callable[[], Queues]) -> Callable[[], Queues]:
    """Fill the seam; returns what filled it before."""
    global _make
    before, _make = _make, make
    return before


def queues() -> Queues:
    """Return who knows the queues."""
    return _make()


def subscription(queue: str | None, *, is_retry: bool) -> str:
    """The name under which workers subscribe to this queue, or to its retry lane."""
    if queue is None:
        return DEFAULT
    return f"{queue}{RETRY_SUFFIX}" if is_retry else queue


def queue_of(subscription: str) -> str:
    """The queue of a subscription."""
    return subscription.removesuffix(RETRY_SUFFIX)
