"""The page of metrics."""

from __future__ import annotations

from django.utils.module_loading import import_string

from orchestrator.core import frame
from orchestrator.core.management.markdown import page_of, table_of


def page() -> str:
    metrics = [
        metric
        for path in frame.collect(lambda app: app.metrics_described)
        for metric in import_string(path)
    ]
    return page_of(
        "Metrics",
        "`GET /metrics` of any API process answers for the whole installation. A histogram has the "
        "names below with `_bucket`, `_sum` and `_count`. [Monitoring](../monitoring.md) says what "
        "to do with them.",
        table_of(
            ("Metric", "Kind", "Labels", "Tells"),
            [
                (
                    f"`{metric.name}`",
                    type(metric).__name__.removeprefix("Pair").lower(),
                    ", ".join(f"`{label}`" for label in metric.labels),
                    metric.text,
                )
                for metric in metrics
            ],
        ),
    )
