"""Events of `core.execution`: executions that came into a status."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence

from django.db.models import QuerySet

from orchestrator.automation import triggers
from orchestrator.automation.followed.history import Followed, depths
from orchestrator.automation.models import Trigger
from orchestrator.automation.recording import NewEvent
from orchestrator.core.models import ExecutionEvent

SOURCE = "execution"

Rows = QuerySet[ExecutionEvent, ExecutionEvent]


def _wanted(trigger: Trigger, rows: Rows) -> Rows:
    wanted = rows.filter(to_status__in=sorted(triggers.wanted_statuses(trigger)))
    columns = ("execution__action_ref", "execution__correlation_id")
    own = [field.attname for field in ExecutionEvent._meta.concrete_fields]
    return wanted.select_related("execution").only(*own, *columns)


def _is_named(trigger: Trigger, row: ExecutionEvent) -> bool:
    patterns = trigger.parameters.get("actions")
    return patterns is None or any(
        fnmatch.fnmatchcase(row.execution.action_ref, pattern) for pattern in patterns
    )


def _key(row: ExecutionEvent) -> str:
    return f"{row.execution_id}:{row.pk}"


def _events(trigger: Trigger, rows: Sequence[ExecutionEvent]) -> list[NewEvent]:
    known = depths({row.execution_id for row in rows})
    return [_event(trigger, row, known.get(row.execution_id, 0) + 1) for row in rows]


def _event(trigger: Trigger, row: ExecutionEvent, depth: int) -> NewEvent:
    return NewEvent(
        trigger=trigger,
        payload={
            "execution_id": str(row.execution_id),
            "action_ref": row.execution.action_ref,
            "status": row.to_status,
            "was": row.from_status,
            "event": row.event,
            "reason": row.reason,
            "attempt": row.attempt,
            "at": row.at.isoformat(),
        },
        key=_key(row),
        occurred_at=row.at,
        # what comes of it is of its tree
        correlation_id=row.execution.correlation_id or str(row.execution_id),
        source=SOURCE,
        cause_execution_id=row.execution_id,
        depth=depth,
    )


FOLLOWED = Followed(wanted=_wanted, is_named=_is_named, key=_key, events=_events)
