"""What a user types for a task or a step: an id or the beginning of one, or a step's name."""

from __future__ import annotations

import difflib
from uuid import UUID

from orchestrator.core.management.selection import HEX, beginning_with
from orchestrator.workflows.engine import UnknownStep, UnknownTask
from orchestrator.workflows.models import Step, Task


def task_id(text: str) -> UUID:
    """The id of the task that this is, or begins. Raises UnknownTask and AmbiguousPrefix."""
    return beginning_with(text, Task.objects.values_list("pk"), "pk", UnknownTask)


def step(task: UUID, text: str) -> Step:
    """The step of this name in the task, or else of this id or beginning of one.

    Raises UnknownStep and AmbiguousPrefix.
    """
    rows = Step.objects.filter(task_id=task).select_related("task__template")
    if (found := rows.filter(name=text).first()) is not None:
        return found
    if not HEX.fullmatch(text.strip().lower().replace("-", "")):
        names = list(rows.order_by("pk").values_list("name", flat=True)[:2_000])
        near = difflib.get_close_matches(text, names, n=1)
        hint = f", did you mean {near[0]!r}?" if near else ""
        raise UnknownStep(f"No step of task {task} is called {text!r}{hint}")
    return rows.get(pk=beginning_with(text, rows.values_list("pk"), "pk", UnknownStep))
