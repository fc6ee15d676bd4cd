"""The number of executions that came into each status, and the time that it took: by minute,
quarter of an hour and hour. Exact: each number is what a SELECT over the history gives."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from django.db.models import (
    Case,
    DurationField,
    Exists,
    ExpressionWrapper,
    F,
    OuterRef,
    Q,
    Subquery,
    When,
)

from orchestrator.core import database
from orchestrator.core.models import ExecutionEvent
from orchestrator.core.states import TERMINAL
from orchestrator.rollups import adding, causes, marks
from orchestrator.rollups.adding import Sums
from orchestrator.rollups.models import SPANS, Arrivals, Durations
from orchestrator.rollups.spans import start_of

NAME = "minutes"
AT_ONCE = 20_000
"""Events of one transaction."""

SETTLES = timedelta(seconds=45)
"""After so long no event of a minute is written any more: statements end after 30 s, and whoever
writes read the clock before."""

BOUNDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1_800)
"""The ends of the buckets, in seconds; the last bucket has none."""

KEY = ("minutes", "start", "action_ref", "to_status")
ARRIVALS = Sums(Arrivals, (*KEY, "reason"), ("count",))
DURATIONS = Sums(Durations, (*KEY, "bucket"), ("count", "seconds"))


def roll_up(*, now: datetime) -> Any:
    """Add what the history has since the last run, to the numbers and to the causes."""
    return database.carry_out_each(
        {
            NAME: lambda: marks.follow(NAME, take, at_once=AT_ONCE, now=now),
            causes.NAME: lambda: causes.follow(now=now),
        }
    )


def take(after: int, last: int) -> None:
    """Add the events in this range of ids."""
    arrivals: Counter[tuple[Any, ...]] = Counter()
    buckets: Counter[tuple[Any, ...]] = Counter()
    seconds: dict[tuple[Any, ...], float] = defaultdict(float)
    for at, action_ref, status, reason, took in _events(after, last):
        # spans are cut from these: there are few
        minute = at.replace(second=0, microsecond=0)
        arrivals[minute, action_ref, status, reason] += 1
        if took is not None and took >= timedelta(0):  # a clock may be set back
            key = minute, action_ref, status, bisect_left(BOUNDS, took.total_seconds())
            buckets[key] += 1
            seconds[key] += took.total_seconds()
    adding.add(ARRIVALS, _summed(ARRIVALS, ((key, (n,)) for key, n in arrivals.items())))
    timed = ((key, (n, seconds[key])) for key, n in buckets.items())
    adding.add(DURATIONS, _summed(DURATIONS, timed))


def _events(after: int, last: int) -> Iterable[tuple[Any, ...]]:
    """The time, the action, the status, the reason, and what it took. It is grouped here and not by
    the database, which would compute the last one again for each bound of a bucket."""
    events = ExecutionEvent.objects.filter(pk__gt=after, pk__lte=last).order_by()
    columns = ("at", "execution__action_ref", "to_status", "reason")
    return events.annotate(took=_took()).values_list(*columns, "took").iterator()


def _summed(
    sums: Sums, by_minute: Iterable[tuple[tuple[Any, ...], tuple[float, ...]]]
) -> list[dict[str, Any]]:
    """The rows of all spans, from the numbers by minute."""
    rows: dict[tuple[Any, ...], list[float]] = {}
    for (minute, *rest), numbers in by_minute:
        for minutes in SPANS:
            row = rows.setdefault((minutes, start_of(minute, minutes), *rest), [0] * len(numbers))
            for place, number in enumerate(numbers):
                row[place] += number
    names = (*sums.keys, *sums.added)
    return [dict(zip(names, (*key, *numbers), strict=True)) for key, numbers in rows.items()]


def _took() -> Case:
    """Of a first claim, the time since the acceptance; of an end, since the claim of the attempt;
    of other events nothing."""
    claims = ExecutionEvent.objects.filter(execution=OuterRef("execution"), event="claim")
    is_first = Q(attempt=1) | ~Exists(claims.filter(attempt__lt=OuterRef("attempt")))
    claimed_at = Subquery(claims.filter(attempt=OuterRef("attempt")).order_by().values("at")[:1])
    return Case(
        When(is_first, event="claim", then=_since(F("execution__created_at"))),
        When(to_status__in=sorted(TERMINAL), then=_since(claimed_at)),
        output_field=DurationField(),
    )


def _since(then: Any) -> ExpressionWrapper:
    return ExpressionWrapper(F("at") - then, output_field=DurationField())
