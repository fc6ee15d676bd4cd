"""What Prometheus is told. Numbers that must be true of all processes are the database's."""

from orchestrator.metrics.tallied import (
    DETECTION_RUNS,
    DETECTION_SECONDS,
    DLQ_ENTRIES_CREATED,
    DLQ_HOURS,
    STALE_DETECTED,
    STALE_TO_ERROR,
    TALLIED,
    Counter,
    Histogram,
)

__all__ = [
    "DETECTION_RUNS",
    "DETECTION_SECONDS",
    "DLQ_ENTRIES_CREATED",
    "DLQ_HOURS",
    "STALE_DETECTED",
    "STALE_TO_ERROR",
    "TALLIED",
    "Counter",
    "Histogram",
]
