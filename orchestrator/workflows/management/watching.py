"""Waiting for tasks."""

from __future__ import annotations

import time
from uuid import UUID

from orchestrator.core.management.watching import LOOK_EVERY_SECONDS
from orchestrator.workflows.models import Task
from orchestrator.workflows.states import TASKS, TaskState


def wait_for_task(task_id: UUID) -> Task:
    """The task, once it is over, in error, or blocked until somebody repairs a step."""
    standing = [*TASKS.ended, TaskState.BLOCKED_BY_FAILURES]
    while True:
        task = Task.objects.select_related("template").get(pk=task_id)
        if task.state in standing:
            return task
        time.sleep(LOOK_EVERY_SECONDS)
