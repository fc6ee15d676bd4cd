"""The answers of brokers about their queues: asked for all who look, in a thread, and kept.

A page shows the last answer and never waits for a broker that is away.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from orchestrator.core import brokers, queue_depths, reachability, topology
from orchestrator.core.queue_depths import Depth
from orchestrator.queues.gates import depths as gate_depths
from orchestrator.queues.models import Gate

T = TypeVar("T")

EVERY_SECONDS = 5.0
WAIT_SECONDS = 0.3
"""A page waits for so long for an answer, and then shows the one before."""
IN_TURN = 200
"""Of the workers' queues, so many are asked for at once."""
SILENT_SECONDS = 10.0
"""A question that has no answer for so long gets none."""


@dataclass(frozen=True)
class Seen(Generic[T]):
    """The last answer of a broker."""

    answer: T | None
    silent_seconds: float | None
    """Since when it has not answered; None if it does."""


class Watched(Generic[T]):
    """A question that is asked at most each five seconds, while somebody looks. It returns None
    while there is no answer."""

    def __init__(self, question: Callable[[], T | None]) -> None:
        self._question = question
        self._probe = reachability.Probe(self._ask, fresh_seconds=EVERY_SECONDS)
        self._last: T | None = None
        self._silent_since: float | None = None

    def look(self) -> Seen[T]:
        """The last answer; a new one if it comes soon."""
        pending = self._probe.ask()
        reachability.in_time(pending, time.monotonic() + WAIT_SECONDS, otherwise=None)
        since = self._silent_since
        if since is None and not pending.done():
            asked_at = self._probe.asked_at
            since = asked_at if time.monotonic() - asked_at > SILENT_SECONDS else None
        return Seen(self._last, None if since is None else time.monotonic() - since)

    def _ask(self) -> None:
        began = time.monotonic()
        answer = self._question()
        if answer is None:
            self._silent_since = self._silent_since or began
        else:
            self._last, self._silent_since = answer, None


# --- Muster's own broker -------------------------------------------------------------------------


@dataclass(frozen=True)
class Sampled:
    """The depth of a queue, and when it was asked for."""

    depth: Depth | None
    """None if the queue does not exist."""
    at: float
    """By `time.monotonic`."""


@dataclass
class Sampler:
    """Asks for the shared queues each time, and for those of workers in turn."""

    of_workers: Sequence[str] = ()
    """The names to ask for; set by whoever looks."""
    known: dict[str, Sampled] = field(default_factory=dict)
    _next: int = 0

    def take(self) -> Mapping[str, Sampled] | None:
        """Ask for some; all that is known, or None without an answer."""
        names = [*(spec.name for spec in topology.shared_queues()), *self._turn()]
        try:
            found = queue_depths.ask(names)
        except brokers.errors():
            return None
        now = time.monotonic()
        fresh = {name: Sampled(found.get(name), now) for name in names}
        self.known = {**self.known, **fresh}
        return self.known

    def _turn(self) -> list[str]:
        names = self.of_workers
        start = self._next if self._next < len(names) else 0
        self._next = start + IN_TURN
        return list(names[start : self._next])


sampler = Sampler()
own = Watched(lambda: sampler.take())


def queues(worker_ids: Iterable[int]) -> Seen[Mapping[str, Sampled]]:
    """The queues of Muster's own broker, those of these workers among them."""
    sampler.of_workers = [topology.worker_queue(id).name for id in sorted(worker_ids)]
    return own.look()


# --- brokers of gates ----------------------------------------------------------------------------


@dataclass
class GateSampler:
    """Asks the brokers of gates; one that does not answer is asked once each time."""

    gates: Sequence[Gate] = ()
    known: dict[int, list[gate_depths.Depth] | None] = field(default_factory=dict)

    def take(self) -> Mapping[int, list[gate_depths.Depth] | None]:
        """The queues of each gate by its key; None if its broker does not answer."""
        silent: set[str] = set()
        for gate in self.gates:
            depths = None if gate.broker in silent else gate_depths.asked(gate)
            if depths is None:
                silent.add(gate.broker)
            self.known[gate.pk] = depths
        return self.known


gate_sampler = GateSampler()
of_gates = Watched(lambda: gate_sampler.take())


def gates(rows: Sequence[Gate]) -> dict[int, list[gate_depths.Depth] | None]:
    """The queues of these gates by their keys, as far as their brokers have answered. One that was
    not asked for yet has none."""
    if not rows:
        return {}
    gate_sampler.gates = rows
    answer = of_gates.look().answer or {}
    return {each.pk: answer.get(each.pk, []) for each in rows}
