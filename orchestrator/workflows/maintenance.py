"""What beat schedules for tasks."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any

from django.conf import settings

from orchestrator.core import clock
from orchestrator.workflows.engine.staleness import detect_stale

LONGEST_RUN_SECONDS = 20.0
"""What is left to do after this is done at the next tick."""


def detect_stale_tasks(*, now: datetime) -> Any:
    """Open investigations for tasks that are stuck, batch by batch, and move them to error."""
    until = time.monotonic() + LONGEST_RUN_SECONDS
    stale = opened = moved = 0
    moment = clock.running_from(now)
    while True:
        found = detect_stale(moment())
        stale, opened = stale + len(found.stale), opened + len(found.opened)
        moved += len(found.moved)
        is_last = len(found.stale) < settings.MUSTER.staleness_batch_size
        if is_last or not (found.opened or found.moved) or time.monotonic() > until:
            return {"stale": stale, "opened": opened, "moved": moved}
