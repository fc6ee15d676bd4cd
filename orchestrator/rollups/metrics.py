"""Prometheus metrics of rollups."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from orchestrator.core.metrics.gauges import Gauge
from orchestrator.rollups import causes, minutes
from orchestrator.rollups.models import Mark

READ_UNTIL = Gauge(
    "muster_rollups_read_until_timestamp_seconds",
    "Until when the history is in the console's numbers over time (`minutes`) and causes of "
    "failures (`causes`).",
    "part",
)
METRICS = (READ_UNTIL,)


def families(now: datetime) -> Iterator[Any]:
    """Every metric of rollups, from the database as it is now."""
    marks = dict(Mark.objects.values_list("name", "read_until"))
    read = {name: marks.get(name) for name in (minutes.NAME, causes.NAME)}
    yield READ_UNTIL.by({name: at.timestamp() if at else 0.0 for name, at in read.items()})
