"""What Prometheus is told. Numbers that must be true of all processes are the database's."""

from orchestrator.core.metrics.counters import DLQ_ENTRIES_CREATED, DLQ_HOURS, Counter, Histogram

__all__ = ["DLQ_ENTRIES_CREATED", "DLQ_HOURS", "Counter", "Histogram"]
