"""The feed of tasks: what is said of them to who listens."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any
from uuid import UUID

from django.db.models import Case, F, QuerySet, When

from orchestrator.core.authority import Place
from orchestrator.core.frame import NAMESPACES
from orchestrator.core.news import About
from orchestrator.workflows.models import Task, TransitionRecord


def history_of_tasks() -> QuerySet[TransitionRecord, Any]:
    """Rows about a step have no task's id."""
    of_task = Case(When(step__isnull=True, then=F("task_id")))
    return TransitionRecord.objects.annotate(of_task=of_task).values_list(
        "pk", "of_task", "to_state", "at"
    )


def tasks(ids: Collection[UUID]) -> dict[UUID, About]:
    rows = Task.objects.filter(pk__in=ids).values_list("pk", "template__namespace", "requested_by")
    return {id: About(str(id), Place(NAMESPACES, name), owner) for id, name, owner in rows}
