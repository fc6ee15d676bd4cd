"""Snapshots of events and enforcements, for investigations."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime
from uuid import UUID

from orchestrator.automation.models import Enforcement, Event
from orchestrator.core.investigations import Subject


def events(ids: Collection[UUID], *, now: datetime) -> list[Subject]:
    """Take snapshots of these events."""
    return subjects_of(Event.objects.filter(pk__in=ids))


def subjects_of(rows: Iterable[Event]) -> list[Subject]:
    """Take snapshots of events that were read."""
    return [
        Subject(
            kind="event",
            id=row.pk,
            name=row.type_ref,
            state=row.problem or ("evaluated" if row.evaluated_at else "recorded"),
            snapshot={
                "source": row.source,
                "key": row.dedup_key,
                "depth": row.depth,
                "correlation_id": row.correlation_id,
                "cause_execution_id": row.cause_execution_id and str(row.cause_execution_id),
                "received_at": row.received_at.isoformat(),
            },
        )
        for row in rows
    ]


def enforcements(ids: Collection[UUID], *, now: datetime) -> list[Subject]:
    """Take snapshots of these enforcements."""
    rows = Enforcement.objects.filter(pk__in=ids).select_related("rule")
    return [
        Subject(
            kind="enforcement",
            id=row.pk,
            name=row.rule.ref,
            state=row.state,
            snapshot={
                "event_id": str(row.event_id),
                "reason": row.reason,
                "problem": row.problem,
                "created_at": row.created_at.isoformat(),
            },
        )
        for row in rows
    ]
