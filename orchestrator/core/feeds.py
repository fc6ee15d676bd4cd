"""Feeds of core: what is said of executions, workers and investigations to who listens.

They read nothing of contents: a notifier's login could not.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from orchestrator.core.authority import Place
from orchestrator.core.frame import PACKS, WORKERS
from orchestrator.core.models import DLQEntry, Execution, ExecutionEvent, Worker
from orchestrator.core.models.dead_letters import place_of_subject
from orchestrator.core.news import About


def history_of_executions() -> QuerySet[ExecutionEvent, Any]:
    return ExecutionEvent.objects.values_list("pk", "execution_id", "to_status", "at")


def executions(ids: Collection[UUID]) -> dict[UUID, About]:
    rows = Execution.objects.filter(pk__in=ids).values_list("pk", "action_ref", "requested_by")
    return {id: About(str(id), Place.of_ref(PACKS, ref), owner) for id, ref, owner in rows}


def workers(ids: Collection[int]) -> dict[int, About]:
    rows = Worker.objects.filter(pk__in=ids).values_list(
        "pk", "name", "labels", "status", "cordoned", "retired_at"
    )
    return {
        id: About(name, Place(WORKERS, name, labels), state=_of_worker(status, cordoned, retired))
        for id, name, labels, status, cordoned, retired in rows
    }


def _of_worker(status: str, cordoned: bool, retired_at: object) -> str:
    if retired_at is not None:
        return "retired"
    return "cordoned" if cordoned and status == Worker.Status.ACTIVE else status


def entries(ids: Collection[int]) -> dict[int, About]:
    rows = DLQEntry.objects.filter(pk__in=ids).values_list(
        "pk", "subject_kind", "subject_name", "opened_by", "resolution_status"
    )
    return {
        id: About(str(id), place_of_subject(kind, name), owner, state)
        for id, kind, name, owner, state in rows
    }
