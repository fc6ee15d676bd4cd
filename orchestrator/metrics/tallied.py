"""Counters and histograms that any process adds to, in the transaction that they tell of."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter as Multiset
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from orchestrator.models.tallies import Tally, TallyKey

SUM = "sum"
INFINITE = "+Inf"


@dataclass(frozen=True)
class Counter:
    """A number that grows, for each `reason`; with `""` for the reason it has no label."""

    name: str
    text: str
    by_reason: bool = True

    def add(self, amounts: Mapping[str, int]) -> None:
        """Grow by so much for each reason; undone with the caller's transaction."""
        Tally.objects.add(
            {TallyKey(self.name, reason): amount for reason, amount in amounts.items()}
        )


@dataclass(frozen=True)
class Histogram:
    """How often values fell below each of `buckets`, for each `reason`."""

    name: str
    text: str
    buckets: tuple[float, ...]
    by_reason: bool = True

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


DLQ_ENTRIES_CREATED = Counter("muster_dlq_entries_created_total", "DLQ entries that were opened.")
DLQ_HOURS = Histogram(
    "muster_dlq_time_in_queue_hours",
    "From the opening of a DLQ entry to its closing.",
    buckets=(0.1, 0.5, 1, 2, 4, 8, 24, 72, 168),
)
STALE_DETECTED = Counter(
    "muster_staleness_tasks_detected_total", "Tasks that were found over a limit, by the limit."
)
STALE_TO_ERROR = Counter(
    "muster_staleness_tasks_transitioned_to_error_total",
    "Tasks that were moved to error for it, by the limit.",
)
DETECTION_RUNS = Counter(
    "muster_staleness_detection_runs_total", "Runs of the staleness detection.", by_reason=False
)
DETECTION_SECONDS = Histogram(
    "muster_staleness_detection_duration_seconds",
    "How long a run of the staleness detection took.",
    buckets=(0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
    by_reason=False,
)

TALLIED: tuple[Counter | Histogram, ...] = (
    DLQ_ENTRIES_CREATED,
    DLQ_HOURS,
    STALE_DETECTED,
    STALE_TO_ERROR,
    DETECTION_RUNS,
    DETECTION_SECONDS,
)
