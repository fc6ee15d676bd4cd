"""What each kind of fault does, and which worker was fit for work at what time."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping

from tests.chaos.facts import Evidence, Fault, Row
from tests.chaos.spans import FOREVER, Span, union, without


class Effect(enum.Enum):
    """What a fault does to the workers that it names, or to the services that they need."""

    DIES = "the worker's process is killed, with what it runs or without"
    CHILD_DIES = "one process of its pool is killed"
    LEAVES = "it is told to stop"
    STOPS = "its processes stand still"
    NO_DATABASE = "it does not reach the database"
    NO_BROKER = "it does not reach the broker"
    NO_QUEUE = "its queue is gone, or what leads there"
    BUSY = "all its slots have long work"
    NO_EXECUTOR = "nobody schedules"
    STALLS = "somebody may wait between asking the clock and writing down what happened"
    CLOCK = "the database's clock is stepped"


EFFECTS: Mapping[str, frozenset[Effect]] = {
    "kill pool child": frozenset({Effect.CHILD_DIES}),
    "kill worker": frozenset({Effect.DIES}),
    "stop worker": frozenset({Effect.LEAVES}),
    "freeze worker": frozenset({Effect.STOPS}),
    "busy worker": frozenset({Effect.BUSY}),
    "kill executor": frozenset({Effect.NO_EXECUTOR}),
    "freeze executor": frozenset({Effect.NO_EXECUTOR, Effect.STALLS}),
    "kill beat": frozenset(),
    "kill api": frozenset(),
    "kill sensor": frozenset(),
    "freeze api": frozenset({Effect.STALLS}),
    "database held": frozenset({Effect.NO_DATABASE, Effect.STALLS}),
    "broker held": frozenset({Effect.NO_BROKER}),
    "stop broker": frozenset({Effect.NO_BROKER}),
    "kill broker": frozenset({Effect.NO_BROKER}),
    "long broker outage": frozenset({Effect.NO_BROKER}),
    "freeze broker": frozenset({Effect.NO_BROKER}),
    "broker memory alarm": frozenset({Effect.NO_BROKER}),
    "close all connections": frozenset({Effect.NO_BROKER}),
    "cut worker from broker": frozenset({Effect.NO_BROKER}),
    "silent broker": frozenset({Effect.NO_BROKER, Effect.NO_EXECUTOR}),
    "restart database": frozenset({Effect.NO_DATABASE, Effect.STALLS}),
    "freeze database": frozenset({Effect.NO_DATABASE, Effect.STALLS}),
    "read-only database": frozenset({Effect.NO_DATABASE, Effect.STALLS}),
    "full database": frozenset({Effect.NO_DATABASE, Effect.STALLS}),
    "no free connection": frozenset({Effect.NO_DATABASE, Effect.STALLS}),
    "cut worker from database": frozenset({Effect.NO_DATABASE, Effect.STALLS}),
    "silent database": frozenset({Effect.NO_DATABASE, Effect.NO_EXECUTOR, Effect.STALLS}),
    "silent maintenance": frozenset({Effect.STALLS}),  # another executor works
    "hold row locks": frozenset({Effect.STALLS}),
    "step clock forward": frozenset({Effect.CLOCK}),
    "step clock back": frozenset({Effect.CLOCK}),
    "delete worker queue": frozenset({Effect.NO_QUEUE}),
    "delete binding": frozenset({Effect.NO_QUEUE}),
    "delete exchange": frozenset({Effect.NO_QUEUE}),
    "empty virtual host": frozenset({Effect.NO_QUEUE}),
    "cut redis": frozenset(),
    "duplicate dispatches": frozenset(),
    "garbage on every queue": frozenset(),
    "second installation": frozenset(),
    "machine stalled": frozenset({Effect.STOPS, Effect.STALLS}),
    "poison": frozenset({Effect.CHILD_DIES}),
    "delete output queue": frozenset(),
    "failpoint, kill": frozenset({Effect.DIES}),
    "failpoint, lie": frozenset(),
}
"""A kind that is not here accounts for nothing."""

HELD = frozenset({"scheduled", "running", "canceling"})
"""What a worker has, from the choice of the worker to the end of the attempt: a limit counts all of
it, so that nothing which is on its way to a worker can start beyond it."""

UNFIT = frozenset(
    {
        Effect.DIES,
        Effect.LEAVES,
        Effect.STOPS,
        Effect.NO_DATABASE,
        Effect.NO_BROKER,
        Effect.NO_QUEUE,
    }
)
"""Nobody expects such a worker to take work."""

ABSENT = UNFIT - {Effect.NO_BROKER, Effect.NO_QUEUE}
"""It is not there at all. A worker that only messages cannot reach is: what was to go to it is sent
again, or elsewhere, and nothing ends for that."""

RECOVERY_SECONDS = 10.0
"""From the end of a fault to a worker that is fit again, at most: connections are made again with
pauses of some seconds, and what failed a check is looked at again every five."""

TURN_SECONDS = 2.0
"""A place that becomes free is taken by who is next in line within this, on a busy machine."""


def effects_of(fault: Fault) -> frozenset[Effect]:
    return EFFECTS.get(fault.kind, frozenset())


def faults_with(evidence: Evidence, effects: Iterable[Effect]) -> list[Fault]:
    """The faults that have one of these effects."""
    wanted = frozenset(effects)
    return [fault for fault in evidence.faults if wanted & effects_of(fault)]


def hits(
    evidence: Evidence,
    worker: str,
    effects: Iterable[Effect],
    begin: float,
    end: float,
    *,
    at_least_seconds: float = 0.0,
) -> bool:
    """Whether one of these effects hit this worker between begin and end, for so long.

    Two faults that overlap, such as a cut and a database that is frozen before the cut is healed,
    are one to the worker; so are two with less than a heartbeat between them.
    """
    between = evidence.terms.heartbeat_seconds
    spans = [
        (fault.at, fault.until)
        for fault in faults_with(evidence, effects)
        if worker in fault.workers
    ]
    return any(
        since <= end and until >= begin and until - since >= at_least_seconds
        for since, until in (*spans, *union(spans, between))  # a moment, as a kill, is no time
    )


def fit(evidence: Evidence, worker: str, unless: frozenset[Effect] = UNFIT) -> list[Span]:
    """When this worker was up, and no fault with one of these effects hit it."""
    lives = [
        (life.began_at, FOREVER if life.ended_at is None else life.ended_at)
        for life in evidence.lives
        if life.worker == worker
    ]
    broken = [
        (fault.at, fault.until + RECOVERY_SECONDS)
        for fault in faults_with(evidence, unless)
        if worker in fault.workers
    ]
    return without(lives, broken)


def some_fit(evidence: Evidence, unless: frozenset[Effect] = UNFIT) -> list[Span]:
    """When at least one worker was fit."""
    workers = {life.worker for life in evidence.lives}
    return union(span for worker in workers for span in fit(evidence, worker, unless))


def full(evidence: Evidence, worker: str) -> list[Span]:
    """When this worker had an attempt for each of its slots."""
    changes = sorted(
        (at, change)
        for begin, end in evidence.attempts_of.get(worker, ())
        for at, change in ((begin, 1), (end, -1))
    )
    spans: list[Span] = []
    held, since = 0, 0.0
    for at, change in changes:
        if held >= evidence.terms.slots:
            spans.append((since, at))
        held, since = held + change, at
    return union(spans)


def promised(evidence: Evidence, queue: str = "default", action: str = "") -> list[Span]:
    """When a worker of this queue was fit and had a free slot, there was somebody to send it work,
    and neither the queue nor the policy of the action was at its limit."""
    # once for all: each execution whose deadline has passed is asked about
    limited = action if action in evidence.limits else ""
    key = f"promised {queue} {limited}"
    if key not in evidence.derived:
        of_queue = without(_promised(evidence, queue), at_limit(evidence, queue))
        evidence.derived[key] = without(of_queue, at_policy(evidence, limited))
    spans: list[Span] = evidence.derived[key]
    return spans


def at_limit(evidence: Evidence, queue: str) -> list[Span]:
    """When workers had as much of this queue as its limit allows."""
    lane = evidence.lanes.get(queue)
    if lane is None or lane.max_running is None:
        return []
    return _full(evidence, lane.max_running, lambda row: row.queue == queue)


def at_policy(evidence: Evidence, action: str) -> list[Span]:
    """When workers had as much of this action as its policy allows."""
    limit = evidence.limits.get(action)
    if limit is None:
        return []
    return _full(evidence, limit, lambda row: row.action == action)


def _full(evidence: Evidence, limit: int, concerns: Callable[[Row], bool]) -> list[Span]:
    """When workers held so many of the rows that this concerns, or a place had just become free for
    who is next in line."""
    spans: list[Span] = []
    held: set[str] = set()
    since: float | None = None
    for event in evidence.events:
        row = evidence.row_of.get(event.execution)
        if row is None or not concerns(row):
            continue
        (held.add if event.to_status in HELD else held.discard)(event.execution)
        is_full = len(held) >= limit
        if is_full and since is None:
            since = event.at
        elif not is_full and since is not None:
            spans.append((since, event.at))
            since = None
    return union(spans if since is None else [*spans, (since, FOREVER)], between=TURN_SECONDS)


def _promised(evidence: Evidence, queue: str) -> list[Span]:
    lane = evidence.lanes.get(queue)
    workers = {life.worker for life in evidence.lives} if lane is None else lane.workers
    idle = union(
        span
        for worker in workers
        for span in without(fit(evidence, worker), full(evidence, worker))
    )
    away = [
        (fault.at, fault.until + RECOVERY_SECONDS)
        for fault in faults_with(evidence, {Effect.NO_EXECUTOR})
    ]
    return without(idle, away)
