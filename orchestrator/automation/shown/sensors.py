"""A sensor: as JSON, and as facts."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import Field

from orchestrator.automation.models import Assignment, AssignmentEvent, Sensor
from orchestrator.core.redaction import redacted
from orchestrator.core.shown.documents import Shown
from orchestrator.core.shown.values import At, Due, Fact, Json, said


class SensorSummary(Shown):
    """A sensor as listings show it."""

    ref: str
    pack: str | None = Field(description="null: the poll of a trigger.")
    description: str
    runtime: str
    trigger_types: list[str]
    state: str
    is_enabled: bool
    service: str | None = Field(description="Which sensor service runs it.")
    events: int = Field(description="How many it has reported.")
    restarts: int
    problem: str = Field(description="Why it ended last.")
    last_event_at: datetime | None
    retired_at: datetime | None


class SensorDetail(SensorSummary):
    """A sensor with what it is, and how far it has come."""

    trigger_id: int | None = Field(description="Of a poll: its trigger.")
    entry_point: Any
    options: dict[str, Any]
    keys: list[str]
    labels: dict[str, str]
    enabled_by_pack: bool
    enabled_override: bool | None = Field(description="As an operator said, whatever its pack.")
    fence: int
    failures: int = Field(description="In a row.")
    refused: int = Field(description="How many of its lines were refused; its log says why.")
    changed_at: datetime | None = Field(description="Since when it has its state.")
    next_start_at: datetime | None
    cursor: dict[str, Any] | str = Field(description="How far it has come.")


class SensorLogShown(Shown):
    """The end of what a sensor wrote to its standard error."""

    lines: list[str]


def summary(row: Sensor) -> SensorSummary:
    """Convert a sensor, as `catalogue.find` loads it."""
    return SensorSummary(**_summary(row))


def detail(row: Sensor, *, cursor: Any) -> SensorDetail:
    """Convert a sensor, with its cursor or what is shown instead."""
    names = ("trigger_id", "entry_point", "keys", "labels", "enabled_by_pack", "enabled_override")
    values = {name: getattr(row, name) for name in names}
    assigned = assignment_of(row)
    values |= {
        name: getattr(assigned, name, default)
        for name, default in (
            ("fence", 0), ("failures", 0), ("refused", 0), ("changed_at", None),
            ("next_start_at", None),
        )
    }  # fmt: skip
    options = redacted(row.options)
    return SensorDetail(**_summary(row), **values, options=options, cursor=cursor)


def assignment_of(row: Sensor) -> Assignment | None:
    """Its assignment; None of one that was installed with an error."""
    return getattr(row, "assignment", None)


def state_of(row: Sensor) -> str:
    """Its state, or that it is no longer in its pack."""
    assigned = assignment_of(row)
    if row.retired_at is not None:
        return "retired"
    return str(assigned.state) if assigned else "unwanted"


def situation(row: Sensor, now: datetime) -> list[Fact]:
    """The facts of a sensor: what it is, who runs it, and how it does."""
    assigned = assignment_of(row)
    facts: list[Any] = [
        ("Sensor", row.ref),
        ("Description", row.description),
        ("State", state_of(row)),
        ("Enabled", _why_enabled(row)),
        ("Runtime", row.runtime),
        ("Entry point", Json(row.entry_point) if row.entry_point else None),
        ("Reports", ", ".join(row.trigger_types)),
        ("Keys", ", ".join(row.keys) or None),
        ("Labels", Json(row.labels) if row.labels else None),
    ]
    if assigned is not None:
        facts += [
            ("Service", assigned.service.name if assigned.service else None),
            ("Events", f"{assigned.events:,}"),
            ("Refused lines", f"{assigned.refused:,}" if assigned.refused else None),
            ("Last event", At(assigned.last_event_at) if assigned.last_event_at else None),
            ("Restarts", assigned.restarts or None),
            ("Ended last", assigned.problem or None),
            (
                "Starts again",
                Due(assigned.next_start_at, now) if assigned.next_start_at else None,
            ),
        ]
    return said(facts)


def latest_changes(row: Sensor, number: int) -> list[AssignmentEvent]:
    """The latest changes of the assignment of a sensor, the newest first."""
    assigned = assignment_of(row)
    return list(assigned.history.order_by("-pk")[:number]) if assigned else []


def _why_enabled(row: Sensor) -> str:
    if row.retired_at is not None:
        return "no: it is no longer in its pack"
    if row.trigger_id is not None:
        return "yes" if row.is_enabled else "no: no enabled rule waits for it"
    by = "its definition" if row.enabled_override is None else "an operator"
    return f"{'yes' if row.is_enabled else 'no'}, says {by}"


def _summary(row: Sensor) -> dict[str, Any]:
    assigned = assignment_of(row)
    service = assigned.service if assigned else None
    return {
        "ref": row.ref,
        "pack": row.pack.name if row.pack else None,
        "description": row.description,
        "runtime": row.runtime,
        "trigger_types": row.trigger_types,
        "state": state_of(row),
        "is_enabled": row.is_enabled,
        "service": service.name if service else None,
        "events": assigned.events if assigned else 0,
        "restarts": assigned.restarts if assigned else 0,
        "problem": assigned.problem if assigned else "",
        "last_event_at": assigned.last_event_at if assigned else None,
        "retired_at": row.retired_at,
    }
