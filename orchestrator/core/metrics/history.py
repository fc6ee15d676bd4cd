"""Counters of executions, made from their history: exact, and nothing on the hot path.

Whatever moves an execution writes an event. One process at a time counts the new events, in the
order of their ids, and remembers how far it is in the transaction that adds to the counters.

On PostgreSQL a transaction may commit after another that got later ids. So the last id is noted
together with a transaction number that is taken after it was read: ids up to the noted one are
counted when all transactions with smaller numbers are over. That is enough, as an event gets its id
after its transaction got its number: a row was moved before. Usually nobody has to be waited for.
"""

from __future__ import annotations

import time
from collections import Counter as Multiset
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from django.db import connection, transaction
from django.db.models import (
    Case,
    Count,
    DurationField,
    Exists,
    ExpressionWrapper,
    F,
    Max,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    Sum,
    Value,
    When,
)

from orchestrator.core.metrics.counters import INFINITE, Counter, Histogram, PairCounter
from orchestrator.core.models import ExecutionEvent, HistoryMark
from orchestrator.core.models.dead_letters import FAILED_BY
from orchestrator.core.reasons import Reason
from orchestrator.core.states import AGAIN, TERMINAL, ExecutionStatus

AT_ONCE = 50_000
"""Events of one transaction."""

MOST_SECONDS = 5.0
"""Of one run; the next one goes on."""

Events = QuerySet[ExecutionEvent, Any]


def _usual_ends() -> Iterable[tuple[str, str]]:
    """The status that executions have for each reason, if they do not end while a cancel is under
    way."""
    status_of = {
        Reason.SUCCEEDED: ExecutionStatus.COMPLETED,
        Reason.RUN_TIMEOUT: ExecutionStatus.TIMEOUT,
        Reason.RUN_DEADLINE_PASSED: ExecutionStatus.TIMEOUT,
        Reason.WORKER_LOST: ExecutionStatus.ABANDONED,
        Reason.PROCESS_LOST: ExecutionStatus.ABANDONED,
        Reason.WORKER_STOPPED: ExecutionStatus.ABANDONED,
        Reason.CANCELLED: ExecutionStatus.CANCELLED,
        Reason.CANCELLED_RUNNING: ExecutionStatus.CANCELLED,
        Reason.CANCEL_UNCONFIRMED: ExecutionStatus.CANCELLED,
    }
    ending = set(Reason) - {
        Reason.GIVEN_BACK,
        Reason.MOVED,
        Reason.DISPATCH_FAILED,
        Reason.TASK_REJECTED,
        Reason.QUEUE_PAUSED,
    }
    return [(str(r), str(status_of.get(r, ExecutionStatus.FAILED))) for r in sorted(ending)]


ENDED = PairCounter(
    "muster_executions_ended_total",
    "Executions that ended, by reason and terminal status.",
    ("reason", "status"),
    _usual_ends,
)
REPEATED = PairCounter(
    "muster_attempts_repeated_total",
    "Attempts after which their execution went back to the backlog, by reason: `retry` counts for "
    "its policy, `give_back` for none, and so does `defer`: the action could not begin then.",
    ("reason", "event"),
    list,
)
FAILED_BY_DLQ = Counter(
    "muster_dlq_executions_failed_total",
    "Executions that the drain of dead letters failed, by reason.",
    lambda: [str(Reason.QUEUE_TTL_EXPIRED), str(Reason.MESSAGE_REJECTED)],
)
STAGES = ("requested_to_scheduled", "scheduled_to_running", "requested_to_running")
SCHEDULING = Histogram(
    "muster_execution_scheduling_seconds",
    "From the acceptance of an execution to its first worker, from there to its claim (for each "
    "attempt), and from its acceptance to its first claim.",
    buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1_800),
    reasons=lambda: STAGES,
    label="stage",
)
TALLIED = (ENDED, REPEATED, FAILED_BY_DLQ, SCHEDULING)


def count(*, now: datetime) -> int:
    """Count the events that were written since the last run; returns how many.

    Another process that counts at the moment is left alone. What a transaction that is still open
    may have written is counted by a later run.
    """
    until = time.monotonic() + MOST_SECONDS
    total = 0
    while True:
        counted, has_more = _count_some(now)
        total += counted
        if not has_more or time.monotonic() > until:
            return total


def _count_some(now: datetime) -> tuple[int, bool]:
    """Count up to AT_ONCE ids; returns how many events, and whether there are more."""
    last = _last_id()
    # durable: in a transaction that has its number already, others could have taken later ones
    with transaction.atomic(durable=True):
        mark = HistoryMark.objects.select_for_update(skip_locked=True).first()
        if mark is None:
            _begin_again(last)
            return 0, False
        if mark.is_reached:
            mark.seen_to, mark.seen_at = max(last, mark.seen_to), now
            mark.seen_before = own_number()
        counted = 0
        if is_settled(mark.seen_before):
            counted = _count_to(mark, min(mark.seen_to, mark.counted_to + AT_ONCE))
        mark.save()
        return counted, counted > 0 and not mark.is_reached


def _last_id() -> int:
    return ExecutionEvent.objects.aggregate(last=Max("pk"))["last"] or 0


def _begin_again(last: int) -> None:
    """Make the mark that somebody deleted, unless another process holds it at the moment."""
    if not HistoryMark.objects.exists():
        HistoryMark.objects.create(counted_to=last, seen_to=last)


def own_number() -> int:
    """The number of this transaction: all that were taken earlier are smaller."""
    return _ask("pg_current_xact_id()") if connection.vendor == "postgresql" else 0


def is_settled(number: int) -> bool:
    """Return True if all transactions with smaller numbers are over: nobody can still commit an id
    that was noted before this number was taken."""
    if connection.vendor != "postgresql":
        return True
    return number <= _ask("pg_snapshot_xmin(pg_current_snapshot())")


def _ask(number: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {number}::text::bigint")
        (found,) = cursor.fetchone()
    return int(found)


def _count_to(mark: HistoryMark, last: int) -> int:
    """Count the events up to this id; returns how many there are."""
    counted = 0
    if last > mark.counted_to:
        counted = _add(ExecutionEvent.objects.filter(pk__gt=mark.counted_to, pk__lte=last))
    mark.counted_to = last
    if mark.is_reached:
        mark.counted_until = mark.seen_at
    return counted


# --- what is counted -----------------------------------------------------------------------------


def _add(events: Events) -> int:
    """Add these events to the counters; returns how many there are."""
    groups = list(
        events.order_by()
        .values("event", "to_status", "reason", by_dlq=Q(actor=FAILED_BY))
        .annotate(n=Count("pk"))
    )
    ends = [group for group in groups if group["to_status"] in TERMINAL]
    again = [group for group in groups if group["event"] in AGAIN]
    ENDED.add(_summed(ends, "reason", "to_status"))
    REPEATED.add(_summed(again, "reason", "event"))
    FAILED_BY_DLQ.add({group["reason"]: group["n"] for group in ends if group["by_dlq"]})
    SCHEDULING.add(_waits(events))
    return sum(group["n"] for group in groups)


def _summed(groups: Iterable[Mapping[str, Any]], *keys: str) -> Multiset[tuple[str, str]]:
    sums: Multiset[tuple[str, str]] = Multiset()
    for group in groups:
        first, second = (str(group[key]) for key in keys)
        sums[first, second] += group["n"]
    return sums


def _waits(events: Events) -> Iterator[tuple[str, str, int, float]]:
    """The waits that ended with these events: by stage and bucket, their number and their sum."""
    placed, claims = events.filter(event="schedule"), events.filter(event="claim")
    earlier = ExecutionEvent.objects.filter(execution=OuterRef("execution"))
    placing = earlier.filter(event="schedule", attempt=OuterRef("attempt"))
    first = claims.filter(
        Q(attempt=1) | ~Exists(earlier.filter(event="claim", attempt__lt=OuterRef("attempt")))
    )
    accepted = F("execution__created_at")
    for stage, rows, since in (
        (STAGES[0], placed.filter(attempt=1), accepted),
        (STAGES[1], claims, Subquery(placing.values("at")[:1])),
        (STAGES[2], first, accepted),
    ):
        for part, number, total in _by_bucket(rows, since):
            yield stage, part, number, total


def _by_bucket(events: Events, since: Any) -> Iterator[tuple[str, int, float]]:
    """Group by the bucket of the time since then. A wait that a clock made negative is none."""
    ends = zip(SCHEDULING.buckets, SCHEDULING.parts, strict=False)
    bucket = Case(
        *(When(wait__lte=timedelta(seconds=end), then=Value(part)) for end, part in ends),
        default=Value(INFINITE),
    )
    waits = events.order_by().annotate(
        wait=ExpressionWrapper(F("at") - since, output_field=DurationField())
    )
    groups = (
        waits.filter(wait__gte=timedelta(0))
        .values(part=bucket)
        .annotate(n=Count("pk"), total=Sum("wait"))
    )
    for group in groups:
        yield group["part"], group["n"], group["total"].total_seconds()
