"""Counters and histograms that any process adds to, in the transaction that they count."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter as Multiset
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from orchestrator.core import frame
from orchestrator.core.models import DLQEntry
from orchestrator.core.models.counters import Tally, TallyKey

SUM = "sum"
INFINITE = "+Inf"


@dataclass(frozen=True)
class Counter:
    """A growing number for each `reason`, which is the value of its label; the reason `""` has no
    label."""

    name: str
    text: str
    reasons: Callable[[], Iterable[str]] | None = None
    """Reasons to show as 0 until they happen; None: it has no label."""
    label: str = "reason"

    def add(self, amounts: Mapping[str, int]) -> None:
        """Add these amounts by reason; undone with the caller's transaction."""
        Tally.objects.add(
            {TallyKey(self.name, reason): amount for reason, amount in amounts.items()}
        )


@dataclass(frozen=True)
class Histogram:
    """The numbers of values below each of `buckets`, for each `reason`."""

    name: str
    text: str
    buckets: tuple[float, ...]
    reasons: Callable[[], Iterable[str]] | None = None
    label: str = "reason"

    @property
    def parts(self) -> list[str]:
        """The upper ends as Prometheus writes them, the infinite one last."""
        return [*(f"{bucket:g}" for bucket in self.buckets), INFINITE]

    def observe(self, values: Iterable[tuple[str, float]]) -> None:
        """Add values, each with its reason; undone with the caller's transaction."""
        amounts: Multiset[TallyKey] = Multiset()
        sums: dict[TallyKey, float] = {}
        for reason, value in values:
            part = self.parts[bisect_left(self.buckets, value)]
            amounts[TallyKey(self.name, reason, part)] += 1
            key = TallyKey(self.name, reason, SUM)
            sums[key] = sums.get(key, 0.0) + value
        Tally.objects.add({**amounts, **sums})


def reasons_of_entries() -> list[str]:
    """The reasons for which entries are opened."""
    return list(DLQEntry.Reason.values)


DLQ_ENTRIES_CREATED = Counter(
    "muster_dlq_entries_created_total", "DLQ entries that were opened.", reasons_of_entries
)
ROWS_PRUNED = Counter(
    "muster_rows_pruned_total",
    "Executions, tasks, DLQ entries and workers that were removed as they were old.",
    lambda: [retention.name for retention in frame.collect(lambda app: app.retention)],
    label="kind",
)
DLQ_HOURS = Histogram(
    "muster_dlq_time_in_queue_hours",
    "From the opening of a DLQ entry to its closing.",
    buckets=(0.1, 0.5, 1, 2, 4, 8, 24, 72, 168),
    reasons=reasons_of_entries,
)
TALLIED: tuple[Counter | Histogram, ...] = (DLQ_ENTRIES_CREATED, DLQ_HOURS, ROWS_PRUNED)
