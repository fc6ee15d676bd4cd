"""Executions as the subjects of investigations."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from orchestrator.core import contents
from orchestrator.core.contents import Secrets
from orchestrator.core.investigations import Subject
from orchestrator.core.models import Execution

KIND = "execution"
SNAPSHOT = ("parameters", "correlation_id", "created_at")
"""Columns of the snapshot that `without_contents` leaves out. None of them ever changes."""


def take(ids: Collection[UUID], *, now: datetime) -> list[Subject]:
    """Those of these executions that exist."""
    rows = Execution.objects.filter(pk__in=ids).select_related("worker", "action")
    return subjects(list(rows.defer("result")))


def subjects(executions: Sequence[Execution]) -> list[Subject]:
    """Build subjects. Each execution has its worker and action loaded, as before it ended. Columns
    of the snapshot that were left out are read for all of them at once."""
    _add_contents(executions)
    known = contents.secrets_of(executions) if executions else {}
    return [
        _subject(execution, known.get(execution.pk, contents.UNKNOWN)) for execution in executions
    ]


def _add_contents(executions: Sequence[Execution]) -> None:
    lacking = {e.pk: e for e in executions if not e.get_deferred_fields().isdisjoint(SNAPSHOT)}
    if not lacking:
        return
    for id, *values in Execution.objects.filter(pk__in=lacking).values_list("pk", *SNAPSHOT):
        for name, value in zip(SNAPSHOT, values, strict=True):
            setattr(lacking[id], name, value)


def _subject(execution: Execution, secrets: Secrets) -> Subject:
    return Subject(
        kind=KIND,
        id=execution.pk,
        name=execution.action_ref,
        state=str(execution.status),
        attempt=execution.attempt or None,
        snapshot=_snapshot(execution, secrets),
    )


def _snapshot(execution: Execution, secrets: Secrets) -> dict[str, Any]:
    return {
        "id": str(execution.pk),
        "action_ref": execution.action_ref,
        "parameters": contents.parameters(execution, secrets),
        "status": str(execution.status),
        "attempt": execution.attempt,
        "retry_count": execution.retry_count,
        "priority": execution.priority,
        "correlation_id": execution.correlation_id,
        "worker": execution.worker_name,
        "created_at": execution.created_at.isoformat(),
        "scheduled_at": _text(execution.scheduled_at),
        "start_by": _text(execution.start_by),
    }


def _text(at: datetime | None) -> str | None:
    return at.isoformat() if at else None
