"""The figures of queues: what waits, what runs, how old, how fast, and who serves it.

`default` names the lane of what names no queue.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from django.db.models import Q

from orchestrator.core import queue_flow
from orchestrator.core.models import Execution, Worker
from orchestrator.core.models.execution_sets import BACKLOG, DISPATCHED
from orchestrator.core.models.fleet import paused
from orchestrator.core.queue_flow import Share, Work
from orchestrator.core.queue_terms import DEFAULT, queue_of
from orchestrator.core.states import TERMINAL


@dataclass(frozen=True)
class Server:
    """A worker that serves a queue, or its retry lane."""

    worker: str
    subscription: str
    slots: int
    """The most that it runs of it at once."""
    state: str
    """Its status, or `stale` if its heartbeat is too old."""
    paused_until: datetime | None = None


@dataclass(frozen=True)
class Figures:
    """The figures of one queue at one moment."""

    waiting: int = 0
    running: int = 0
    """The number of executions that workers hold: sent to them, or started."""
    oldest_at: datetime | None = None
    """The time at which the execution that has waited longest was accepted."""
    deferred: int = 0
    """The number of executions that wait because their action said that it cannot begin now."""
    per_minute: float = 0.0
    """Ends in the last minute."""
    servers: tuple[Server, ...] = ()

    def oldest_seconds(self, now: datetime) -> float:
        """The age of what has waited longest; 0 if nothing waits."""
        return max(0.0, (now - self.oldest_at).total_seconds()) if self.oldest_at else 0.0


READ = ("name", "status", "capacity", "heartbeat_at", "queues", "queue_pauses")
"""The columns of workers that say who serves what."""

Slots = Mapping[str, Sequence[Server]]
"""The workers that serve each queue."""


def of(
    names: Collection[str], now: datetime, *, work: Work | None = None, slots: Slots | None = None
) -> dict[str, Figures]:
    """The figures of these queues, by name: four queries for any number of them, without those for
    which the caller has an answer already."""
    if work is None:
        moved, minutes = queue_flow.moves(now, _within(names, column="execution__queue"))
        work = Work(_shares(names), {}, moved, minutes)
    slots = serving(now) if slots is None else slots
    found, ends = _loads(names, work.open), Counter[str]()
    for move in work.moves:
        ends[move.queue or DEFAULT] += move.number if move.after in TERMINAL else 0
    return {
        name: replace(
            found[name],
            per_minute=round(ends[name] / work.minutes, 1),
            servers=tuple(slots.get(name, ())),
        )
        for name in names
    }


def loads(names: Collection[str]) -> dict[str, Figures]:
    """The figures of what waits and runs of these queues, by name: one query."""
    return _loads(names, _shares(names))


def _within(names: Collection[str], *, column: str) -> Q:
    """Is in one of these queues."""
    is_named = Q((f"{column}__in", [name for name in names if name != DEFAULT]))
    return is_named | Q((f"{column}__isnull", True)) if DEFAULT in names else is_named


def _shares(names: Collection[str]) -> list[Share]:
    return queue_flow.shares(Execution.objects.filter(_within(names, column="queue")))


def _loads(names: Collection[str], shares: Iterable[Share]) -> dict[str, Figures]:
    found: dict[str, list[Share]] = defaultdict(list)
    for each in shares:
        found[each.queue or DEFAULT].append(each)
    return {name: _load(found[name]) for name in names}


def _load(shares: Sequence[Share]) -> Figures:
    waiting = [each for each in shares if each.status in BACKLOG]
    return Figures(
        waiting=sum(each.number for each in waiting),
        running=sum(each.number for each in shares if each.status in DISPATCHED),
        oldest_at=min((each.created_at for each in waiting), default=None),
        deferred=sum(each.deferred for each in waiting),
    )


def serving(now: datetime, workers: Iterable[Worker] | None = None) -> dict[str, list[Server]]:
    """The workers that are up of each queue, by its name. `workers`: all that are, in the order of
    their names, if the caller has them."""
    found: dict[str, list[Server]] = defaultdict(list)
    for worker in Worker.objects.up().order_by("name").only(*READ) if workers is None else workers:
        for name, slots in (worker.queues or {DEFAULT: None}).items():
            state = worker.status if worker.is_fresh(now) else "stale"
            most = worker.capacity if slots is None else min(slots, worker.capacity)
            until = _paused_until(worker.queue_pauses, name, now)
            found[queue_of(name)].append(Server(worker.name, name, most, state, until))
    return found


def _paused_until(pauses: Mapping[str, str], name: str, now: datetime) -> datetime | None:
    return paused(pauses, now=now).get(queue_of(name))
