"""The figures of queues: what waits, what runs, how old, how fast, and who serves it.

`default` names the lane of what names no queue.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Count, Max, Min, Q

from orchestrator.core.models import Execution, ExecutionEvent, Worker
from orchestrator.core.models.executions import BACKLOG, DISPATCHED
from orchestrator.core.models.fleet import paused
from orchestrator.core.models.time_ordered import created_between
from orchestrator.core.queue_terms import DEFAULT, queue_of
from orchestrator.core.reasons import Reason
from orchestrator.core.states import TERMINAL

RATE_WINDOW = timedelta(minutes=1)
MOST_EVENTS = 20_000
"""The rate is that of the newest so many transitions, if these are of less than a minute."""
MOST_ACCEPTED = 10_000
"""Of the executions that were accepted in the last minute, the newest so many are counted."""


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
    """What workers hold: sent to them, or started."""
    oldest_at: datetime | None = None
    """When what has waited longest was accepted."""
    deferred: int = 0
    """What waits because its action said that it cannot begin now."""
    per_minute: float = 0.0
    """Ends in the last minute."""
    servers: tuple[Server, ...] = ()

    def oldest_seconds(self, now: datetime) -> float:
        """The age of what has waited longest; 0 if nothing waits."""
        return max(0.0, (now - self.oldest_at).total_seconds()) if self.oldest_at else 0.0


NONE = Figures()

Load = tuple[int, int, datetime | None, int]
NOTHING: Load = (0, 0, None, 0)


def of(names: Collection[str], now: datetime) -> dict[str, Figures]:
    """The figures of these queues, by name: four queries for any number of them."""
    loads, rates, servers = _loads(names), _rates(names, now), serving(now)
    return {
        name: Figures(*loads.get(name, NOTHING), rates.get(name, 0.0), tuple(servers.get(name, ())))
        for name in names
    }


def loads(names: Collection[str]) -> dict[str, Figures]:
    """What waits and runs of these queues, by name: one query."""
    found = _loads(names)
    return {name: Figures(*found.get(name, NOTHING)) for name in names}


def accepted(now: datetime) -> dict[str, int]:
    """What was accepted within the last minute, by queue."""
    rows = Execution.objects.filter(created_between(now - RATE_WINDOW, None))
    newest = rows.order_by("-pk").values_list("queue", flat=True)[:MOST_ACCEPTED]
    return Counter(name or DEFAULT for name in newest)


def _within(names: Collection[str], *, column: str) -> Q:
    """Is in one of these queues."""
    is_named = Q((f"{column}__in", [name for name in names if name != DEFAULT]))
    return is_named | Q((f"{column}__isnull", True)) if DEFAULT in names else is_named


def _loads(names: Collection[str]) -> dict[str, Load]:
    is_deferred = Q(status__in=BACKLOG, reason=Reason.TASK_REJECTED)
    is_waiting, is_held = Q(status__in=BACKLOG), Q(status__in=DISPATCHED)
    rows = (
        Execution.objects.open()
        .filter(_within(names, column="queue"))
        .order_by()
        .values_list("queue")
        .annotate(
            waiting=Count("pk", filter=is_waiting),
            running=Count("pk", filter=is_held),
            oldest=Min("created_at", filter=is_waiting),
            deferred=Count("pk", filter=is_deferred),
        )
    )
    return {name or DEFAULT: tuple(load) for name, *load in rows}


def _rates(names: Collection[str], now: datetime) -> dict[str, float]:
    """Ends a minute of each queue, by the newest transitions: the history has no index by queue."""
    newest = ExecutionEvent.objects.order_by().aggregate(newest=Max("pk"))["newest"]
    if newest is None:
        return {}
    looked_at = ExecutionEvent.objects.filter(pk__gt=newest - MOST_EVENTS, at__lte=now)
    found = looked_at.aggregate(first=Min("at"), number=Count("pk"))
    since = max(now - RATE_WINDOW, found["first"] or now)
    seconds = (now - since).total_seconds()
    if seconds <= 0:
        return {}
    is_end = Q(at__gte=since, to_status__in=sorted(TERMINAL))
    ends = looked_at.filter(is_end, _within(names, column="execution__queue"))
    counted = ends.order_by().values_list("execution__queue").annotate(ends=Count("pk"))
    # a history shorter than a minute counts as a minute: one end is no rate of sixty
    is_cut = found["number"] >= MOST_EVENTS
    minutes = (seconds if is_cut else RATE_WINDOW.total_seconds()) / 60
    return {name or DEFAULT: round(number / minutes, 1) for name, number in counted}


def serving(now: datetime) -> dict[str, list[Server]]:
    """The workers that are up of each queue, by its name."""
    found: dict[str, list[Server]] = defaultdict(list)
    for worker in Worker.objects.up().order_by("name"):
        for name, slots in (worker.queues or {DEFAULT: None}).items():
            state = worker.status if worker.is_fresh(now) else "stale"
            most = worker.capacity if slots is None else min(slots, worker.capacity)
            until = _paused_until(worker.queue_pauses, name, now)
            found[queue_of(name)].append(Server(worker.name, name, most, state, until))
    return found


def _paused_until(pauses: Mapping[str, str], name: str, now: datetime) -> datetime | None:
    return paused(pauses, now=now).get(queue_of(name))
