"""Executions are scheduled as the executor does it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from orchestrator.core import executions
from orchestrator.core.fleet import Placement
from orchestrator.core.models import Execution
from tests.factories import NOW


def schedule(
    *rows: Execution, now: datetime = NOW, placement: Placement | None = None, **values: Any
) -> bool:
    """With this view of the fleet, or a new one."""
    return executions.schedule(
        [row.pk for row in rows],
        placement=placement or Placement(),
        now=now,
        actor="executor",
        **values,
    )
