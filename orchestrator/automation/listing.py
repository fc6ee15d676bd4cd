"""Filters of the listings of long tables, for API and terminal.

A filter without an index looks at a bounded number of rows, see ADR 50: `among` of
`cursors.newest`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from orchestrator.automation.models import Enforcement, Event
from orchestrator.automation.models.enforcements import EnforcementQuerySet
from orchestrator.automation.models.events import EventQuerySet


def events(
    rows: EventQuerySet,
    *,
    type: str | None = None,
    trigger_id: int | None = None,
    key: str | None = None,
    source: str | None = None,
    correlation_id: str | None = None,
    received_after: datetime | None = None,
    received_before: datetime | None = None,
    evaluated: bool | None = None,
) -> tuple[EventQuerySet, EventQuerySet | None]:
    """Those that match all filters, and, for filters without an index, all that they look at."""
    equal = {
        "type_ref": type, "trigger": trigger_id, "dedup_key": key, "source": source,
        "correlation_id": correlation_id, "received_at__gte": received_after,
        "received_at__lt": received_before,
    }  # fmt: skip
    rows = rows.filter(**_given(equal))
    if evaluated is not None:
        rows = rows.filter(evaluated_at__isnull=not evaluated)
    has_index = trigger_id is not None or correlation_id is not None or evaluated is False
    slow = (type, key, source, received_after, received_before)
    return rows, _among(Event.objects.all(), has_index, *slow)


def enforcements(
    rows: EnforcementQuerySet,
    *,
    rule: str | None = None,
    event_id: UUID | None = None,
    execution_id: UUID | None = None,
    state: list[str] | None = None,
    open: bool | None = None,
) -> tuple[EnforcementQuerySet, EnforcementQuerySet | None]:
    """The same of enforcements."""
    equal = {"rule__ref": rule, "event": event_id, "execution": execution_id}
    rows = rows.filter(**_given(equal))
    if state:
        rows = rows.filter(state__in=state)
    if open is not None:
        rows = rows.filter(ended_at__isnull=open)
    has_index = any((rule, event_id, execution_id, open))
    return rows, _among(Enforcement.objects.all(), has_index, state)


def _given(filters: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in filters.items() if value is not None}


def _among(rows: Any, has_index: bool, *slow: Any) -> Any:
    return rows if not has_index and any(slow) else None
