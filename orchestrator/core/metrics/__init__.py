"""Prometheus metrics. Numbers that cover all processes come from the database."""

from orchestrator.core.metrics.counters import DLQ_ENTRIES_CREATED, DLQ_HOURS, Counter, Histogram

__all__ = ["DLQ_ENTRIES_CREATED", "DLQ_HOURS", "Counter", "Histogram"]
