"""Tasks that may be removed, and executions that may not."""

from __future__ import annotations

from datetime import datetime

from django.db.models import Exists, OuterRef, QuerySet

from orchestrator.core import retention
from orchestrator.core.models.time_ordered import uuid7_floor
from orchestrator.workflows.models import StepExecution, Task
from orchestrator.workflows.states import TASKS


def old_tasks(before: datetime) -> QuerySet[Task]:
    """Tasks that ended before this and that nobody investigates, or the whole of them."""
    return Task.objects.filter(
        pk__lt=uuid7_floor(before), ended_at__lt=before, state__in=sorted(TASKS.terminal)
    ).exclude(retention.has_pending_entry())


def belongs_to_a_step() -> Exists:
    """The condition for executions that were an attempt at a step."""
    return Exists(StepExecution.objects.filter(execution=OuterRef("pk")))
