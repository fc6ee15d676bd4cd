"""How rows stand now, read again from the database."""

from __future__ import annotations

from typing import Any, TypeVar

from django.db.models import Model

from orchestrator.core.models import Execution, ExecutionEvent, Worker, WorkerEvent

Row = TypeVar("Row", bound=Model)


def reread(row: Row) -> Row:
    return type(row)._default_manager.get(pk=row.pk)


def values(row: Model) -> dict[str, Any]:
    """Every column."""
    return dict(type(row)._default_manager.filter(pk=row.pk).values().get())


def ended(execution: Execution) -> tuple[str, str]:
    """Its status, and the reason for it."""
    row = reread(execution)
    return row.status, row.reason


def events(execution: Execution) -> list[str]:
    """What has happened to it, oldest first."""
    return list(ExecutionEvent.objects.of(execution.pk).values_list("event", flat=True))


def history(worker: Worker) -> list[tuple[str, str, str]]:
    """What has happened to it, oldest first: kind, actor, reason."""
    rows = WorkerEvent.objects.of(worker.pk).reverse()
    return list(rows.values_list("kind", "actor", "reason"))
