"""All metrics as Prometheus reads them, from the database at each scrape.

Any process can answer: the numbers are those of the whole installation, and outlive every process.
Prometheus reads them from one API process, or from any behind a balancer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import accumulate
from typing import Any

from django.db.models import Count
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from orchestrator.core import clock, frame
from orchestrator.core.metrics.counters import SUM, TALLIED, Counter, Histogram
from orchestrator.core.models import DLQEntry, Execution, Tally, Tick, Worker
from orchestrator.core.states import OPEN

PROMISE_SECONDS = 20
"""An execution may stay open for this long after its deadline."""


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
    yield from tallied(TALLIED)
    yield gauge(
        "muster_dlq_pending_investigations",
        "DLQ entries that nobody has closed.",
        "reason",
        counted(DLQEntry.objects.pending(), "dlq_reason", DLQEntry.Reason.values),
    )
    yield gauge(
        "muster_executions_open",
        "Executions without a terminal status.",
        "status",
        counted(Execution.objects.open(), "status", sorted(OPEN)),
    )
    overdue = Execution.objects.open().filter(
        deadline_at__lt=now - timedelta(seconds=PROMISE_SECONDS)
    )
    yield GaugeMetricFamily(
        "muster_executions_overdue",
        f"Open executions, more than {PROMISE_SECONDS} s after their deadline.",
        value=overdue.count(),
    )
    yield gauge(
        "muster_workers",
        "Workers, by their status.",
        "status",
        counted(Worker.objects.all(), "status", Worker.Status.values),
    )
    yield GaugeMetricFamily(
        "muster_workers_eligible",
        "Workers that may be given work.",
        value=Worker.objects.eligible(now).count(),
    )
    yield gauge(
        "muster_maintenance_last_run_timestamp_seconds",
        "When a maintenance function last began.",
        "function",
        {tick.name: tick.ran_at.timestamp() for tick in Tick.objects.of_functions()},
    )


def tallied(metrics: Sequence[Counter | Histogram]) -> Iterator[Any]:
    """Yield these metrics with their present values."""
    stored: dict[str, dict[str, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
    for tally in Tally.objects.filter(metric__in=[metric.name for metric in metrics]):
        stored[tally.metric][tally.reason][tally.part] = tally.value
    for metric in metrics:
        # a reason without events is 0: then a rate starts with the first scrape, not the first
        # event
        reasons = metric.reasons() if metric.reasons else [""]
        values: dict[str, dict[str, float]] = {reason: {} for reason in reasons}
        values |= stored[metric.name]
        if isinstance(metric, Counter):
            yield _counter(metric, values)
        else:
            yield _histogram(metric, values)


def _labels(metric: Counter | Histogram) -> tuple[list[str], Callable[[str], list[str]]]:
    """The names of its labels, and their values for a reason."""
    if metric.reasons:
        return [metric.label], lambda reason: [reason]
    return [], lambda reason: []


def _counter(metric: Counter, values: Mapping[str, Mapping[str, float]]) -> CounterMetricFamily:
    names, labels = _labels(metric)
    family = CounterMetricFamily(metric.name, metric.text, labels=names)
    for reason, parts in values.items():
        family.add_metric(labels(reason), parts.get("", 0))
    return family


def _histogram(
    metric: Histogram, values: Mapping[str, Mapping[str, float]]
) -> HistogramMetricFamily:
    names, labels = _labels(metric)
    family = HistogramMetricFamily(metric.name, metric.text, labels=names)
    for reason, parts in values.items():
        growing = accumulate(parts.get(part, 0) for part in metric.parts)
        buckets = list(zip(metric.parts, growing, strict=True))
        family.add_metric(labels(reason), buckets, sum_value=parts.get(SUM, 0))
    return family


def gauge(name: str, text: str, label: str, values: Mapping[str, float]) -> GaugeMetricFamily:
    """Make a gauge with a number for each value of a label."""
    family = GaugeMetricFamily(name, text, labels=[label])
    for value, number in values.items():
        family.add_metric([value], number)
    return family


def counted(rows: Any, field: str, known: Iterable[str]) -> dict[str, float]:
    """Count the rows of each value; known values without rows are 0."""
    counts = rows.order_by().values_list(field).annotate(n=Count("pk"))
    return dict.fromkeys(map(str, known), 0.0) | {str(value): float(n) for value, n in counts}
