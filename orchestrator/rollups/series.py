"""Numbers over time as charts and sparklines read them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db.models import CharField, IntegerField, Q, QuerySet, Sum, Value
from django.db.models.functions import Cast

from orchestrator.core.authority import Principal
from orchestrator.core.states import TERMINAL, ExecutionStatus
from orchestrator.rollups import causes, minutes
from orchestrator.rollups.minutes import BOUNDS
from orchestrator.rollups.models import (
    HOUR,
    MINUTE,
    QUARTER,
    Arrivals,
    Durations,
    FailureCount,
    Mark,
)
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
    """The number of failures, by reason."""
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
    """The ends in a window, and in the last minutes."""

    bins: list[Bin]
    recent: Mapping[str, list[int]]
    """The number of ends in each span of `RECENT`, by status."""


class Row(NamedTuple):
    """The executions that came into a status in one span."""

    minutes: int
    """Of the span; of `READ_UNTIL`, 0."""
    start: datetime
    status: str
    detail: str
    """The reason; of what started, the number of the bucket of its wait."""
    number: int


READ_UNTIL = "read until"
"""In place of a status: of the row whose start is the time until which the history is read."""


def numbers(window: Window, *, now: datetime, seen_by: Principal) -> Numbers:
    """The spans of a window with what happened in executions that the caller may see, and the last
    minutes: one query."""
    found = _read(window, now, seen_by)
    final = [row.start - minutes.SETTLES for row in found if row.status == READ_UNTIL]
    by_start = {
        start: Bin(start, any(start + window.span <= each for each in final))
        for start in window.starts(now)
    }
    for row in found:
        each = by_start.get(row.start)
        if each is None or row.minutes != window.minutes:
            continue
        if row.status == STARTED:
            each.waits[int(row.detail)] = row.number
            continue
        each.ended[row.status] = each.ended.get(row.status, 0) + row.number
        if row.status in causes.FAILED:
            each.failed[row.detail] = each.failed.get(row.detail, 0) + row.number
    return Numbers(list(by_start.values()), _recent(found, now))


def _recent(found: Iterable[Row], now: datetime) -> Mapping[str, list[int]]:
    places = {start: number for number, start in enumerate(RECENT.starts(now))}
    recent: dict[str, list[int]] = {}
    for row in found:
        is_end = row.minutes == RECENT.minutes and row.status != STARTED
        if is_end and row.start in places:
            recent.setdefault(row.status, [0] * len(places))[places[row.start]] += row.number
    return recent


def _read(window: Window, now: datetime, seen_by: Principal) -> list[Row]:
    """The ends in a window and in the last minutes, the waits in the window, and the time until
    which the history is read."""
    in_window = Q(minutes=window.minutes, start__gte=window.first(now))
    in_minutes = Q(minutes=RECENT.minutes, start__gte=RECENT.first(now))
    ended = Arrivals.objects.visible_to(seen_by).filter(
        in_window | in_minutes, to_status__in=sorted(TERMINAL)
    )
    waited = Durations.objects.visible_to(seen_by).filter(in_window, to_status=STARTED)
    mark = Mark.objects.filter(name=minutes.NAME, read_until__isnull=False).order_by()
    read_until = mark.values_list(
        Value(0, IntegerField()), "read_until", Value(READ_UNTIL), Value(""), Value(0)
    )
    rows = _summed(ended, "reason").union(
        _summed(waited, Cast("bucket", CharField())), read_until, all=True
    )
    return [Row(*row) for row in rows]


def _summed(rows: QuerySet[Any], detail: Any) -> QuerySet[Any]:
    columns: QuerySet[Any] = rows.order_by().values_list("minutes", "start", "to_status", detail)
    summed: QuerySet[Any] = columns.annotate(n=Sum("count"))
    return summed


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
    """The number of times that these causes occurred since a time, in spans of a quarter of an hour
    or longer, by the id of the group. Their sum is the number since then."""
    length = timedelta(minutes=max(window.minutes, QUARTER))
    most = (now - since) // length + 1
    rows = FailureCount.objects.filter(group__in=group_ids, start__gte=since).order_by()
    numbers = {id: [0] * most for id in group_ids}
    for id, start, count in rows.values_list("group_id", "start", "count"):
        # a clock that was set back leaves some that are later than now
        numbers[id][min((start - since) // length, most - 1)] += count
    return numbers
