"""Filters of the listings of long tables, for API and terminal.

A filter without an index looks at a bounded number of rows, see ADR 50: `among` of
`cursors.newest`. Beside a filter with an index, these are rows that the index leads to.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from orchestrator.automation.models import Enforcement, Event, Rule
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
    indexed = _given({"trigger": trigger_id, "correlation_id": correlation_id})
    others = _given(
        {
            "type_ref": type, "source": source, "received_at__gte": received_after,
            "received_at__lt": received_before,
        }
    )  # fmt: skip
    # unique in a trigger
    (others if trigger_id is None else indexed).update(_given({"dedup_key": key}))
    if evaluated is False:
        indexed["evaluated_at__isnull"] = True
    rows = rows.filter(**indexed, **others)
    if evaluated:
        rows = rows.filter(evaluated_at__isnull=False)
    return rows, Event.objects.filter(**indexed) if others else None


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
    indexed = _given({"event": event_id, "execution": execution_id})
    if rule is not None:  # by its number: the index begins with it
        indexed["rule"] = Rule.objects.filter(ref=rule).values("pk")[:1]
    if open:
        indexed["ended_at__isnull"] = True
    rows = rows.filter(**indexed)
    if open is False:
        rows = rows.filter(ended_at__isnull=False)
    if not state:
        return rows, None
    return rows.filter(state__in=state), Enforcement.objects.filter(**indexed)


def _given(filters: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in filters.items() if value is not None}
