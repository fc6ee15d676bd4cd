"""Snapshots of events, enforcements and sensors, for investigations."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime
from uuid import UUID

from orchestrator.automation.models import Assignment, Enforcement, Event, Webhook
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
            state=row.why_not_asked or ("evaluated" if row.evaluated_at else "recorded"),
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


def webhooks(ids: Collection[UUID], *, now: datetime) -> list[Subject]:
    """Take snapshots of these hooks."""
    rows = Webhook.objects.filter(pk__in=ids).select_related("trigger")
    return subjects_of_webhooks(rows)


def subjects_of_webhooks(rows: Iterable[Webhook]) -> list[Subject]:
    """Take snapshots of hooks that were read, with their triggers."""
    return [
        Subject(
            kind="webhook",
            id=row.pk,
            name=row.path,
            state="open",
            snapshot={"trigger_id": row.trigger_id, "parameters": row.trigger.parameters},
        )
        for row in rows
    ]


def enforcements(ids: Collection[UUID], *, now: datetime) -> list[Subject]:
    """Take snapshots of these enforcements."""
    rows = Enforcement.objects.filter(pk__in=ids).select_related("rule")
    return [subject_of_enforcement(row) for row in rows]


def subject_of_enforcement(row: Enforcement) -> Subject:
    """Take a snapshot of an enforcement that was read with its rule."""
    return Subject(
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


def sensors(ids: Collection[UUID], *, now: datetime) -> list[Subject]:
    """Take snapshots of the sensors of these assignments."""
    rows = Assignment.objects.filter(pk__in=ids).select_related("sensor", "service")
    return [subject_of_assignment(row) for row in rows]


def subject_of_assignment(row: Assignment) -> Subject:
    """Take a snapshot of a sensor whose assignment was read."""
    return Subject(
        kind="sensor",
        id=row.pk,
        name=row.sensor.ref,
        state=row.state,
        snapshot={
            "service": row.service.name if row.service else None,
            "fence": row.fence,
            "failures": row.failures,
            "restarts": row.restarts,
            "problem": row.problem,
            "last_event_at": row.last_event_at and row.last_event_at.isoformat(),
        },
    )
