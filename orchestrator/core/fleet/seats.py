"""A worker as placement sees it: what it offers, holds, and may still take."""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from orchestrator.core.queue_terms import DEFAULT, queue_of


class Offer(NamedTuple):
    """The properties of a worker that do not change during its life."""

    incarnation: int
    runtimes: frozenset[str]
    labels: dict[str, str]
    isolation: str
    queues: dict[str, int | None]


@dataclass(eq=False, slots=True)
class LimitedLane:
    """A limited subscription of a worker: what the worker holds of it, and what it may hold."""

    window: int
    """Slots of the subscription. If it has all slots of the worker, the queue's `prefetch_buffer`
    is added: what is sent ahead beside other slots would run in those."""
    held: int = 0

    @property
    def free(self) -> int:
        return max(0, self.window - self.held)


@dataclass(eq=False, slots=True)
class Seat:
    """A worker as placement sees it: what it holds, and what it may hold."""

    worker_id: int
    offer: Offer
    capacity: int
    heartbeat_at: datetime
    is_cordoned: bool
    held: int
    slow: int = 0
    """Slots whose action has run for a while: nobody knows when they become free."""
    finished_recently: int = 0
    free: int = 0
    """The number of executions that it may still take, as counted in the fleet's room."""
    window: int = 0
    """Twice the slots, so that none is idle, minus the slow ones, behind which nothing should wait;
    plus what it finished in the last second.

    More would only wait in its queue, while other workers may become free: a backlog belongs in the
    database, where no TTL runs.
    """
    is_closed: bool = False
    """It holds an execution that must run alone, or is kept empty for one."""
    missing_code: Mapping[str, str] = field(default_factory=dict)
    paused: Collection[str] = ()
    """Queues, and actions without one, that it pauses, as `Execution.lane_key` names them."""
    heaps: list[Heap] = field(default_factory=list)
    """The heaps that contain it."""
    lanes: dict[str, LimitedLane] = field(default_factory=dict)
    """Its limited subscriptions; none for a worker that serves the default queue alone."""
    room: int = 0
    """As `free`, of the default queue."""
    total: int = 0
    """As `free`, of all its subscriptions together."""

    def lane(self, queue: str) -> LimitedLane | None:
        """The subscription that an execution of this queue counts for; None without a limit."""
        return self.lanes.get(queue) or self.lanes.get(queue_of(queue))

    def load_in(self, queue: str) -> float:
        """The part of its window that is taken, of itself or of this queue; 1 or more if full."""
        load = math.inf if self.is_closed else self.held / self.window
        lane = self.lane(queue) if self.lanes else None
        if lane is None:
            return load
        return max(load, lane.held / lane.window if lane.window else math.inf)

    def free_in(self, queue: str) -> int:
        """The number of executions of this queue that it may still take."""
        lane = self.lane(queue) if self.lanes else None
        return self.free if lane is None else min(self.free, lane.free)

    @property
    def free_in_lanes(self) -> float:
        """The free places of all its subscriptions; without a bound if one has no limit."""
        if any(name not in self.lanes for name in self.offer.queues):
            return math.inf
        return sum(lane.free for lane in self.lanes.values())

    def serves(self, queue: str) -> bool:
        """Return True if it has this very subscription."""
        return queue in self.offer.queues if self.offer.queues else queue == DEFAULT


Entry = tuple[float, float, Seat]
"""A load, a random number that breaks ties, and the seat; out of date once its load has changed."""


@dataclass(eq=False, slots=True)
class Heap:
    """The seats that may take one need, the least loaded first.

    A seat whose load has changed is only marked, and gets its entry when the heap is asked: with a
    hundred queues there are a hundred heaps, and a choice asks one.
    """

    queue: str
    entries: list[Entry] = field(default_factory=list)
    changed: set[Seat] = field(default_factory=set)

    def update(self) -> None:
        """Give each seat an entry with its present load."""
        for seat in self.changed:
            self.push((seat.load_in(self.queue), random.random(), seat))  # noqa: S311 - no secret
        self.changed.clear()

    def push(self, entry: Entry) -> None:
        heapq.heappush(self.entries, entry)

    def pop(self) -> Entry:
        return heapq.heappop(self.entries)
