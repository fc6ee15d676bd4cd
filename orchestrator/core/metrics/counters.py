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

    @property
    def labels(self) -> list[str]:
        return [self.label] if self.reasons else []

    def add(self, amounts: Mapping[str, int]) -> None:
        """Add these amounts by reason; undone with the caller's transaction."""
        Tally.objects.add(
            {TallyKey(self.name, reason): amount for reason, amount in amounts.items()}
        )


@dataclass(frozen=True)
class PairCounter:
    """A growing number for each pair of values of two labels."""

    name: str
    text: str
    labels: tuple[str, str]
    pairs: Callable[[], Iterable[tuple[str, str]]]
    """Pairs to show as 0 until they happen."""

    def add(self, amounts: Mapping[tuple[str, str], int]) -> None:
        """Add these amounts by pair; undone with the caller's transaction."""
        Tally.objects.add({TallyKey(self.name, *pair): amount for pair, amount in amounts.items()})


@dataclass(frozen=True)
class Histogram:
    """The numbers of values below each of `buckets`, for each `reason`."""

    name: str
    text: str
    buckets: tuple[float, ...]
    reasons: Callable[[], Iterable[str]] | None = None
    label: str = "reason"

    @property
    def labels(self) -> list[str]:
        return [self.label] if self.reasons else []

    @property
    def parts(self) -> list[str]:
        """The upper ends as Prometheus writes them, the infinite one last."""
        return [*(f"{bucket:g}" for bucket in self.buckets), INFINITE]

    def observe(self, values: Iterable[tuple[str, float]]) -> None:
        """Add values, each with its reason; undone with the caller's transaction."""
        self.add(
            (reason, self.parts[bisect_left(self.buckets, value)], 1, value)
            for reason, value in values
        )

    def add(self, groups: Iterable[tuple[str, str, int, float]]) -> None:
        """Add values that are grouped already: a reason, the upper end of a bucket, the number of
        values in it, and their sum."""
        amounts: Multiset[TallyKey] = Multiset()
        sums: dict[TallyKey, float] = {}
        for reason, part, number, total in groups:
            amounts[TallyKey(self.name, reason, part)] += number
            key = TallyKey(self.name, reason, SUM)
            sums[key] = sums.get(key, 0.0) + total
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
DLQ_OUTCOMES = ("settled", "returned", "stale", "unreadable", "answered")
DLQ_LETTERS = Counter(
    "muster_dlq_letters_total",
    "Attempts in dead letters that were drained, by their outcome, and letters that name none.",
    lambda: DLQ_OUTCOMES,
    label="outcome",
)
DLQ_LETTER_SECONDS = Histogram(
    "muster_dlq_processing_seconds",
    "From the death of a letter, which the broker notes by the second, to its drain.",
    buckets=(1, 2, 5, 10, 30, 60, 300, 1_800, 7_200, 86_400),
)
WORKER_DOWNTIME = Histogram(
    "muster_worker_downtime_seconds",
    "From the last heartbeat of a lost worker to its change of status, or its next registration.",
    buckets=(5, 10, 15, 30, 45, 60, 120, 300, 900, 3_600),
)

Tallied = Counter | PairCounter | Histogram
TALLIED: tuple[Tallied, ...] = (
    DLQ_ENTRIES_CREATED,
    DLQ_HOURS,
    DLQ_LETTERS,
    DLQ_LETTER_SECONDS,
    ROWS_PRUNED,
    WORKER_DOWNTIME,
)
