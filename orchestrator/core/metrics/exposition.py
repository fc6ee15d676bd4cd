"""All metrics as Prometheus reads them, from the database at each scrape.

Any process can answer: the numbers are those of the whole installation, and outlive every process.
Prometheus reads them from one API process, or from any behind a balancer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import accumulate
from typing import Any

from django.db.models import Case, Count, Min, Q, When
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from orchestrator.core import clock, frame
from orchestrator.core.metrics import history
from orchestrator.core.metrics.counters import (
    SUM,
    TALLIED,
    Counter,
    Histogram,
    PairCounter,
    Tallied,
)
from orchestrator.core.metrics.gauges import Gauge
from orchestrator.core.models import DLQEntry, Execution, HistoryMark, Tally, Tick, Worker
from orchestrator.core.models.execution_sets import BACKLOG, STARTED
from orchestrator.core.models.fleet import paused
from orchestrator.core.reasons import Reason
from orchestrator.core.states import OPEN, ExecutionStatus

PROMISE_SECONDS = 20
"""An execution may stay open for this long after its deadline."""


PENDING = Gauge(
    "muster_dlq_pending_investigations",
    "DLQ entries that nobody has closed.",
    "reason",
)
OLDEST_PENDING = Gauge(
    "muster_dlq_oldest_pending_seconds",
    "The age of the oldest DLQ entry that nobody has closed; 0 if there is none.",
    "reason",
)
EXECUTIONS_OPEN = Gauge(
    "muster_executions_open",
    "Executions without a terminal status.",
    "status",
)
OLDEST_OPEN = Gauge(
    "muster_executions_oldest_seconds",
    "The time for which the oldest execution has been scheduled, or has run, or else since the "
    "acceptance of the oldest; 0 if there is none.",
    "status",
)
OVERDUE = Gauge(
    "muster_executions_overdue",
    f"Open executions, more than {PROMISE_SECONDS} s after their deadline.",
)
DEFERRED = Gauge(
    "muster_executions_deferred",
    "Executions that wait because their action said that it cannot begin now.",
)
PAUSES = Gauge(
    "muster_worker_pauses",
    "Workers that take nothing of a queue for a while, as an action of it could not begin; "
    "`action:REF` for an action without a queue.",
    "queue",
)
COUNTED_UNTIL = Gauge(
    "muster_history_counted_timestamp_seconds",
    "What happened to executions until then is in their counters.",
)
WORKERS = Gauge(
    "muster_workers",
    "Workers, by their status.",
    "status",
)
ELIGIBLE = Gauge(
    "muster_workers_eligible",
    "Workers that may be given work.",
)
LAST_RUN = Gauge(
    "muster_maintenance_last_run_timestamp_seconds",
    "When a maintenance function last began.",
    "function",
)

METRICS: tuple[Tallied | Gauge, ...] = (
    *TALLIED,
    *history.TALLIED,
    PENDING,
    OLDEST_PENDING,
    EXECUTIONS_OPEN,
    OLDEST_OPEN,
    OVERDUE,
    DEFERRED,
    PAUSES,
    COUNTED_UNTIL,
    WORKERS,
    ELIGIBLE,
    LAST_RUN,
)
"""All that `families` yields."""


def rendered(accept: str) -> tuple[bytes, str]:
    """Render all metrics in the format that the scraper's `Accept` asks for; returns also its
    content type."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(clock.now()))
    encoder, content_type = choose_encoder(accept)
    return encoder(registry), content_type


class _Collector(Collector):
    """The metrics of all apps."""

    def __init__(self, now: datetime) -> None:
        self.now = now

    def describe(self) -> Iterable[Any]:
        return []

    def collect(self) -> Iterator[Any]:
        for families_of_an_app in frame.collect(lambda app: app.metrics):
            yield from families_of_an_app(self.now)


def families(now: datetime) -> Iterator[Any]:
    """Every metric of executions, workers and DLQ entries, from the database as it is now."""
    yield from tallied((*TALLIED, *history.TALLIED))
    yield COUNTED_UNTIL.of(
        _counted_until(),
    )
    yield from _pending_entries(now)
    yield from _open_executions(now)
    yield WORKERS.by(
        counted(Worker.objects.all(), "status", Worker.Status.values),
    )
    yield ELIGIBLE.of(
        Worker.objects.eligible(now).count(),
    )
    yield PAUSES.by(_pauses(now))
    yield LAST_RUN.by(
        {tick.name: tick.ran_at.timestamp() for tick in Tick.objects.of_functions()},
    )


def _counted_until() -> float:
    until = HistoryMark.objects.values_list("counted_until", flat=True).first()
    return until.timestamp() if until else 0.0


def _pending_entries(now: datetime) -> Iterator[Any]:
    """Pending investigations by their reason, from the index of the pending ones."""
    pending = DLQEntry.objects.pending().order_by().values("dlq_reason")
    groups = {
        group["dlq_reason"]: group
        for group in pending.annotate(n=Count("pk"), oldest=Min("dlq_timestamp"))
    }
    yield PENDING.by(
        zeros(DLQEntry.Reason.values) | {reason: group["n"] for reason, group in groups.items()},
    )
    yield OLDEST_PENDING.by(
        zeros(DLQEntry.Reason.values)
        | {reason: _age(group["oldest"], now) for reason, group in groups.items()},
    )


def _open_executions(now: datetime) -> Iterator[Any]:
    """Open executions by their status, in one pass over the index of the open ones."""
    since = Case(
        When(status=ExecutionStatus.SCHEDULED, then="scheduled_at"),
        When(status__in=STARTED, then="started_at"),
        default="created_at",
    )
    deferred = Q(status__in=BACKLOG, reason=Reason.TASK_REJECTED)
    late = Q(deadline_at__lt=now - timedelta(seconds=PROMISE_SECONDS))
    groups = {
        group["status"]: group
        for group in Execution.objects.open()
        .order_by()
        .values("status")
        .annotate(n=Count("pk"), late=Count("pk", filter=late), oldest=Min(since))
        .annotate(deferred=Count("pk", filter=deferred))
    }
    yield EXECUTIONS_OPEN.by(
        zeros(sorted(OPEN)) | {status: group["n"] for status, group in groups.items()},
    )
    yield OLDEST_OPEN.by(
        zeros(sorted(OPEN))
        | {status: _age(group["oldest"], now) for status, group in groups.items()},
    )
    yield OVERDUE.of(
        sum(group["late"] for group in groups.values()),
    )
    yield DEFERRED.of(
        sum(group["deferred"] for group in groups.values()),
    )


def _pauses(now: datetime) -> dict[str, float]:
    """The number of workers that pause, by what they pause."""
    counts: dict[str, float] = {}
    for pauses in (
        Worker.objects.up().exclude(queue_pauses={}).values_list("queue_pauses", flat=True)
    ):
        for name in paused(pauses, now=now):
            counts[name] = counts.get(name, 0.0) + 1
    return counts


def _age(since: datetime, now: datetime) -> float:
    return max(0.0, (now - since).total_seconds())


def tallied(metrics: Sequence[Tallied]) -> Iterator[Any]:
    """Yield these metrics with their present values."""
    stored: dict[str, dict[str, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
    for tally in Tally.objects.filter(metric__in=[metric.name for metric in metrics]):
        stored[tally.metric][tally.reason][tally.part] = tally.value
    for metric in metrics:
        # what has not happened is 0: then a rate starts with the first scrape, not the first event
        if isinstance(metric, PairCounter):
            yield _pair_counter(metric, stored[metric.name])
            continue
        reasons = metric.reasons() if metric.reasons else [""]
        values: dict[str, dict[str, float]] = {reason: {} for reason in reasons}
        values |= stored[metric.name]
        if isinstance(metric, Counter):
            yield _counter(metric, values)
        else:
            yield _histogram(metric, values)


def _labels(metric: Counter | Histogram, reason: str) -> list[str]:
    """The values of its labels for a reason."""
    return [reason] if metric.labels else []


def _counter(metric: Counter, values: Mapping[str, Mapping[str, float]]) -> CounterMetricFamily:
    family = CounterMetricFamily(metric.name, metric.text, labels=metric.labels)
    for reason, parts in values.items():
        family.add_metric(_labels(metric, reason), parts.get("", 0))
    return family


def _pair_counter(
    metric: PairCounter, stored: Mapping[str, Mapping[str, float]]
) -> CounterMetricFamily:
    family = CounterMetricFamily(metric.name, metric.text, labels=metric.labels)
    values = dict.fromkeys(metric.pairs(), 0.0)
    values |= {(first, part): n for first, parts in stored.items() for part, n in parts.items()}
    for pair, number in values.items():
        family.add_metric(pair, number)
    return family


def _histogram(
    metric: Histogram, values: Mapping[str, Mapping[str, float]]
) -> HistogramMetricFamily:
    family = HistogramMetricFamily(metric.name, metric.text, labels=metric.labels)
    for reason, parts in values.items():
        growing = accumulate(parts.get(part, 0) for part in metric.parts)
        buckets = list(zip(metric.parts, growing, strict=True))
        family.add_metric(_labels(metric, reason), buckets, sum_value=parts.get(SUM, 0))
    return family


def zeros(known: Iterable[str]) -> dict[str, float]:
    """0 for each of these."""
    return dict.fromkeys(map(str, known), 0.0)


def counted(rows: Any, field: str, known: Iterable[str]) -> dict[str, float]:
    """Count the rows of each value; known values without rows are 0."""
    counts = rows.order_by().values_list(field).annotate(n=Count("pk"))
    return zeros(known) | {str(value): float(n) for value, n in counts}
