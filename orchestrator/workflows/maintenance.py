"""Maintenance of tasks, scheduled by beat."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any

from django.conf import settings

from orchestrator.core import clock
from orchestrator.workflows import metrics
from orchestrator.workflows.engine.staleness import detect_all

LONGEST_RUN_SECONDS = 20.0
"""Work that is left after this time waits for the next tick."""


def detect_stale_tasks(*, now: datetime) -> Any:
    """Open investigations for tasks that are stuck, batch by batch, and move them to error. Does
    nothing if the settings switch the detection off."""
    if not settings.MUSTER.staleness_detection_enabled:
        return {"stale": 0, "opened": 0, "moved": 0}
    began = time.monotonic()
    stale = opened = moved = 0
    for detected in detect_all(clock.Running(now)):
        stale, opened = stale + len(detected.stale), opened + len(detected.opened)
        moved += len(detected.moved)
        if time.monotonic() - began > LONGEST_RUN_SECONDS:
            break
    metrics.DETECTION_RUNS.add({"": 1})
    metrics.DETECTION_SECONDS.observe([("", time.monotonic() - began)])
    return {"stale": stale, "opened": opened, "moved": moved}
