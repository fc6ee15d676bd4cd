"""Prometheus metrics. Numbers that cover all processes come from the database."""

from orchestrator.core.metrics.counters import (
    DLQ_ENTRIES_CREATED,
    DLQ_HOURS,
    DLQ_LETTER_SECONDS,
    DLQ_LETTERS,
    WORKER_DOWNTIME,
    Counter,
    Histogram,
    PairCounter,
)

__all__ = [
    "DLQ_ENTRIES_CREATED",
    "DLQ_HOURS",
    "DLQ_LETTERS",
    "DLQ_LETTER_SECONDS",
    "WORKER_DOWNTIME",
    "Counter",
    "Histogram",
    "PairCounter",
]
