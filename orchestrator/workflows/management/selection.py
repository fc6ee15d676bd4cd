"""Selection of a task or a step by the text that a user types: an id, its beginning, or a name."""

from __future__ import annotations

from uuid import UUID

from django.db.models import QuerySet

from orchestrator.core.management.selection import HEX, NAMES_LIMIT, beginning_with
from orchestrator.core.words import did_you_mean
from orchestrator.workflows.engine import UnknownStep, UnknownTask
from orchestrator.workflows.models import Step, Task


def task_id(text: str, rows: QuerySet[Task]) -> UUID:
    """The id of the task among these whose id is, or begins with, this text.

    Raises UnknownTask and AmbiguousPrefix.
    """
    return beginning_with(text, rows.values_list("pk"), "pk", UnknownTask)


def step(task: UUID, text: str) -> Step:
    """The step of the task with this name, or else the one whose id is, or begins with, this text.

    Raises UnknownStep and AmbiguousPrefix.
    """
    rows = Step.objects.filter(task_id=task).select_related("task__template")
    if (named := rows.filter(name=text).first()) is not None:
        return named
    if not HEX.fullmatch(text.strip().lower().replace("-", "")):
        names = rows.order_by("pk").values_list("name", flat=True)[:NAMES_LIMIT]
        hint = did_you_mean(text, names)
        raise UnknownStep(f"No step of task {task} is called {text!r}{hint}")
    return rows.get(pk=beginning_with(text, rows.values_list("pk"), "pk", UnknownStep))
