"""What flows through the broker's queues, by the rows: what waits, since when, in and out.

A message is a hint and a row is the truth, so this says what the messages are about. What the
broker has is in `queue_depths`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import Count, Max, Min

from orchestrator.core import topology
from orchestrator.core.models import Execution, ExecutionEvent
from orchestrator.core.models.time_ordered import created_between
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
    """When the message of what has waited longest expires, unless its worker takes it."""


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


def read(now: datetime) -> Flows:
    """Read them: six queries, each bounded."""
    moves, minutes = _moves(now)
    entered, left, ended, taken = Counter[int](), Counter[int](), 0, 0
    for before, after, worker_id, number in moves:
        ended += number if after in TERMINAL else 0
        taken += number if before == REQUESTED else 0
        if worker_id is not None:
            entered[worker_id] += number if after == SCHEDULED else 0
            left[worker_id] += number if before == SCHEDULED else 0
    return Flows(
        requests=_requests(now, left=taken / minutes),
        completed=Flow(waiting=None, entered=ended / minutes, left=ended / minutes),
        workers=_of_workers(entered, left, minutes),
    )


def _requests(now: datetime, *, left: float) -> Flow:
    waiting = Execution.objects.open().filter(status=REQUESTED).order_by()
    found = waiting.aggregate(number=Count("pk"), oldest=Min("created_at"))
    accepted = Execution.objects.filter(created_between(now - WINDOW, None)).order_by("-pk")
    entered = accepted[:MOST_ACCEPTED].count()
    return Flow(found["number"], found["oldest"], entered=entered, left=left)


def _of_workers(
    entered: Mapping[int, int], left: Mapping[int, int], minutes: float
) -> dict[int, Flow]:
    grace = timedelta(seconds=settings.MUSTER.start_grace_seconds)
    rows = Execution.objects.dispatched().order_by().values_list("worker")
    waiting = {
        worker_id: (number, oldest, start_by - grace)
        for worker_id, number, oldest, start_by in rows.annotate(
            number=Count("pk"), oldest=Min("scheduled_at"), start_by=Min("start_by")
        )
    }
    flows = {}
    for id in waiting.keys() | entered.keys() | left.keys():
        number, oldest, expires_at = waiting.get(id, (0, None, None))
        flows[id] = Flow(
            number, oldest, entered.get(id, 0) / minutes, left.get(id, 0) / minutes, expires_at
        )
    return flows


Move = tuple[str, str, int | None, int]
"""From, to, the worker of the latest attempt, and how many."""


def _moves(now: datetime) -> tuple[list[Move], float]:
    """The transitions of the last minute, or of as many minutes as the newest of them span."""
    newest = ExecutionEvent.objects.order_by().aggregate(newest=Max("pk"))["newest"] or 0
    looked_at = ExecutionEvent.objects.filter(pk__gt=newest - MOST_EVENTS)
    first = looked_at.order_by("pk").values_list("at", flat=True).first()
    since = now - WINDOW
    if first is not None and newest > MOST_EVENTS:
        since = max(since, min(first, now - timedelta(seconds=1)))
    counted = (
        looked_at.filter(at__gte=since)
        .order_by()
        .values_list("from_status", "to_status", "execution__worker")
        .annotate(number=Count("pk"))
    )
    return list(counted), (now - since) / WINDOW
