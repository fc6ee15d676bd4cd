"""The flow through the broker's queues, by the rows: what waits, since when, in and out.

A message is a hint and a row is the truth, so this says what the messages are about. What the
broker has is in `queue_depths`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

from django.conf import settings
from django.db.models import Count, Min, OuterRef, Q, Subquery

from orchestrator.core import topology
from orchestrator.core.models import Execution, ExecutionEvent
from orchestrator.core.models.execution_sets import BACKLOG
from orchestrator.core.models.executions import ExecutionQuerySet
from orchestrator.core.models.time_ordered import created_between
from orchestrator.core.reasons import Reason
from orchestrator.core.states import TERMINAL, ExecutionStatus

WINDOW = timedelta(minutes=1)
MOST_EVENTS = 20_000
"""The newest so many transitions are read, if these are of less than a minute."""
MOST_ACCEPTED = 10_000
"""The newest so many acceptances of the last minute are counted."""

SCHEDULED, REQUESTED = ExecutionStatus.SCHEDULED, ExecutionStatus.REQUESTED


@dataclass(frozen=True)
class Flow:
    """The rows of one queue at one moment."""

    waiting: int | None = 0
    """Executions that wait for its messages; None if it is not about executions that wait."""
    oldest_at: datetime | None = None
    entered: float = 0
    """In the last minute."""
    left: float = 0
    expires_at: datetime | None = None
    """The time at which the message of what has waited longest expires, unless its worker takes
    it."""


@dataclass(frozen=True)
class Flows:
    """The rows of the queues that have some."""

    requests: Flow
    completed: Flow
    workers: Mapping[int, Flow] = field(default_factory=dict)
    """By the id of the worker."""

    def of(self, queue: str) -> Flow | None:
        """The rows of a queue by its name; None if no row tells of it."""
        if queue == topology.requests_queue().name:
            return self.requests
        if queue == topology.completed_queue().name:
            return self.completed
        worker_id = topology.worker_id_of(queue)
        return None if worker_id is None else self.workers.get(worker_id, Flow())


class Share(NamedTuple):
    """Open executions of one queue, in one status, at one worker."""

    queue: str | None
    status: str
    worker_id: int | None
    number: int
    deferred: int
    """Of these, how many wait because their action said that it cannot begin now."""
    created_at: datetime
    """Of the oldest; and of the times that follow, the earliest."""
    scheduled_at: datetime | None
    start_by: datetime | None


class Move(NamedTuple):
    """Transitions of executions of one queue that one worker had last."""

    before: str
    after: str
    worker_id: int | None
    queue: str | None
    number: int


@dataclass(frozen=True)
class Work:
    """The work that is open, that came, and that moved within the last minute."""

    open: Sequence[Share]
    accepted: Mapping[str | None, int]
    """By queue."""
    moves: Sequence[Move]
    minutes: float
    """The time in which that moved; less than 1 if there was more than is read."""


def read(now: datetime) -> Work:
    """Read it: four queries, each bounded."""
    found, minutes = moves(now)
    return Work(shares(Execution.objects.all()), accepted(now), found, minutes)


def shares(rows: ExecutionQuerySet) -> list[Share]:
    """The shares of these executions that are open: one query."""
    is_deferred = Q(status__in=BACKLOG, reason=Reason.TASK_REJECTED)
    grouped = rows.open().order_by().values_list("queue", "status", "worker_id")
    counted = grouped.annotate(
        number=Count("pk"),
        deferred=Count("pk", filter=is_deferred),
        created=Min("created_at"),
        scheduled=Min("scheduled_at"),
        start=Min("start_by"),
    )
    return [Share(*row) for row in counted]


def accepted(now: datetime) -> Counter[str | None]:
    """The number of executions that were accepted within the last minute, by queue: one query."""
    rows = Execution.objects.filter(created_between(now - WINDOW, None))
    return Counter(rows.order_by("-pk").values_list("queue", flat=True)[:MOST_ACCEPTED])


def moves(now: datetime, only: Q | None = None) -> tuple[list[Move], float]:
    """The transitions of the last minute, and that minute; or of as much of it as the newest of
    them span. Two queries. `only`: of the executions that this means."""
    events = ExecutionEvent.objects.filter(pk__gt=OuterRef("pk") - MOST_EVENTS).order_by("pk")
    last = ExecutionEvent.objects.order_by("-pk").annotate(first=Subquery(events.values("at")[:1]))
    newest, first = last.values_list("pk", "first").first() or (0, now)
    since = now - WINDOW
    if newest > MOST_EVENTS:
        since = max(since, min(first, now - timedelta(seconds=1)))
    # by the primary key: the history has no index by time
    rows = ExecutionEvent.objects.filter(only or Q(), pk__gt=newest - MOST_EVENTS, at__gte=since)
    columns = ("from_status", "to_status", "execution__worker", "execution__queue")
    counted = rows.order_by().values_list(*columns).annotate(number=Count("pk"))
    return [Move(*row) for row in counted], (now - since) / WINDOW


def flows(work: Work) -> Flows:
    """The flows of the broker's queues that follow from that work."""
    entered, left, ended, taken = Counter[int](), Counter[int](), 0, 0
    for move in work.moves:
        ended += move.number if move.after in TERMINAL else 0
        taken += move.number if move.before == REQUESTED else 0
        if move.worker_id is not None:
            entered[move.worker_id] += move.number if move.after == SCHEDULED else 0
            left[move.worker_id] += move.number if move.before == SCHEDULED else 0
    requested = [each for each in work.open if each.status == REQUESTED]
    return Flows(
        requests=Flow(
            sum(each.number for each in requested),
            min((each.created_at for each in requested), default=None),
            entered=sum(work.accepted.values()),
            left=taken / work.minutes,
        ),
        completed=Flow(waiting=None, entered=ended / work.minutes, left=ended / work.minutes),
        workers=_of_workers(work, entered, left),
    )


def _of_workers(work: Work, entered: Mapping[int, int], left: Mapping[int, int]) -> dict[int, Flow]:
    grace = timedelta(seconds=settings.MUSTER.start_grace_seconds)
    waiting: dict[int, list[Share]] = defaultdict(list)
    for each in work.open:
        if each.status == SCHEDULED and each.worker_id is not None:
            waiting[each.worker_id].append(each)
    return {
        id: Flow(
            sum(each.number for each in waiting[id]),
            min((each.scheduled_at for each in waiting[id] if each.scheduled_at), default=None),
            entered.get(id, 0) / work.minutes,
            left.get(id, 0) / work.minutes,
            min((each.start_by - grace for each in waiting[id] if each.start_by), default=None),
        )
        for id in waiting.keys() | entered.keys() | left.keys()
    }
