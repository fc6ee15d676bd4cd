"""Waiting for tasks."""

from __future__ import annotations

import time
from uuid import UUID

from orchestrator.core.management.watching import LOOK_EVERY_SECONDS
from orchestrator.workflows.models import Task
from orchestrator.workflows.states import TASKS, TaskState


def wait_for_task(task_id: UUID) -> Task:
    """Wait until a task has ended, is in error, or is blocked by failures; returns it."""
    awaited = [*TASKS.ended, TaskState.BLOCKED_BY_FAILURES]
    while True:
        task = Task.objects.select_related("template").get(pk=task_id)
        if task.state in awaited:
            return task
        time.sleep(LOOK_EVERY_SECONDS)
