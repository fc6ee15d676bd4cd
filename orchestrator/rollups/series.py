"""Numbers over time as charts and sparklines read them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.db.models import Q, Sum

from orchestrator.core.authority import Principal
from orchestrator.core.states import TERMINAL, ExecutionStatus
from orchestrator.rollups import causes, minutes
from orchestrator.rollups.minutes import BOUNDS
from orchestrator.rollups.models import HOUR, MINUTE, QUARTER, Arrivals, Durations, FailureCount
from orchestrator.rollups.spans import start_of

STARTED = ExecutionStatus.RUNNING
"""Of these the wait is known."""


@dataclass(frozen=True)
class Window:
    """A time before now, in spans of equal length."""

    name: str
    length: timedelta
    minutes: int
    """Of one span."""

    @property
    def span(self) -> timedelta:
        return timedelta(minutes=self.minutes)

    def first(self, now: datetime) -> datetime:
        """The start of its first span; the last one is that in which now is."""
        return start_of(now, self.minutes) - self.length + self.span

    def starts(self, now: datetime) -> list[datetime]:
        """The starts of its spans, the oldest first."""
        first = self.first(now)
        return [first + number * self.span for number in range(self.length // self.span)]


WINDOWS = {
    window.name: window
    for window in (
        Window("15m", timedelta(minutes=15), MINUTE),
        Window("1h", timedelta(hours=1), MINUTE),
        Window("24h", timedelta(days=1), QUARTER),
        Window("7d", timedelta(days=7), HOUR),
    )
}

RECENT = WINDOWS["15m"]


@dataclass
class Bin:
    """One span: what happened in it."""

    start: datetime
    is_final: bool
    """False: it may still grow."""
    ended: dict[str, int] = field(default_factory=dict)
    """By status."""
    failed: dict[str, int] = field(default_factory=dict)
    """What failed, by reason."""
    waits: dict[int, int] = field(default_factory=dict)
    """By number of the bucket."""

    @property
    def started(self) -> int:
        return sum(self.waits.values())

    def wait(self, part: float) -> float | None:
        """The wait, in seconds, that this part of the executions did not exceed, as far as buckets
        tell; None if none has started."""
        return quantile(self.waits, part)


@dataclass(frozen=True)
class Numbers:
    """What ended in a window, and in the last minutes."""

    bins: list[Bin]
    recent: Mapping[str, list[int]]
    """What ended in each span of `RECENT`, by status."""


def numbers(window: Window, *, now: datetime, seen_by: Principal) -> Numbers:
    """The spans of a window with what happened in executions that the caller may see, and the last
    minutes: three queries."""
    found = list(_arrivals(window, now, seen_by))
    final = minutes.final_before()
    by_start = {
        start: Bin(start, final is not None and start + window.span <= final)
        for start in window.starts(now)
    }
    for length, start, status, reason, number in found:
        each = by_start.get(start)
        if each is None or length != window.minutes:
            continue
        each.ended[status] = each.ended.get(status, 0) + number
        if status in causes.FAILED:
            each.failed[reason] = each.failed.get(reason, 0) + number
    for start, bucket, number in _waits(window, now, seen_by):
        if start in by_start:
            by_start[start].waits[bucket] = number
    return Numbers(list(by_start.values()), _recent(found, now))


def _recent(
    found: Iterable[tuple[int, datetime, str, str, int]], now: datetime
) -> Mapping[str, list[int]]:
    places = {start: number for number, start in enumerate(RECENT.starts(now))}
    recent: dict[str, list[int]] = {}
    for length, start, status, _, number in found:
        if length == RECENT.minutes and start in places:
            recent.setdefault(status, [0] * len(places))[places[start]] += number
    return recent


def _arrivals(
    window: Window, now: datetime, seen_by: Principal
) -> Iterable[tuple[int, datetime, str, str, int]]:
    """The sums of a window and of the last minutes, in one query."""
    wanted = Q(minutes=window.minutes, start__gte=window.first(now))
    wanted |= Q(minutes=RECENT.minutes, start__gte=RECENT.first(now))
    rows = Arrivals.objects.visible_to(seen_by).filter(wanted, to_status__in=sorted(TERMINAL))
    columns = ("minutes", "start", "to_status", "reason")
    return rows.order_by().values_list(*columns).annotate(n=Sum("count"))


def _waits(
    window: Window, now: datetime, seen_by: Principal
) -> Iterable[tuple[datetime, int, int]]:
    rows = Durations.objects.visible_to(seen_by).filter(
        minutes=window.minutes, start__gte=window.first(now), to_status=STARTED
    )
    return rows.order_by().values_list("start", "bucket").annotate(n=Sum("count"))


def quantile(buckets: Mapping[int, int], part: float) -> float | None:
    """The value below which this part of what is in the buckets lies; within a bucket they are
    taken to be spread evenly. Of the last one, which has no end, it is the beginning."""
    wanted = part * sum(buckets.values())
    if not wanted:
        return None
    seen = 0
    for number in sorted(buckets):
        low = BOUNDS[number - 1] if number else 0.0
        if number == len(BOUNDS):
            return low
        if seen + buckets[number] >= wanted:
            return low + (BOUNDS[number] - low) * (wanted - seen) / buckets[number]
        seen += buckets[number]
    return BOUNDS[-1]


def trends(
    group_ids: Sequence[int], window: Window, *, since: datetime, now: datetime
) -> dict[int, list[int]]:
    """How often these causes occurred since a time, in spans of a quarter of an hour or longer, by
    the id of the group. Their sum is how often they occurred since then."""
    length = timedelta(minutes=max(window.minutes, QUARTER))
    most = (now - since) // length + 1
    rows = FailureCount.objects.filter(group__in=group_ids, start__gte=since).order_by()
    numbers = {id: [0] * most for id in group_ids}
    for id, start, count in rows.values_list("group_id", "start", "count"):
        # a clock that was set back leaves some that are later than now
        numbers[id][min((start - since) // length, most - 1)] += count
    return numbers
