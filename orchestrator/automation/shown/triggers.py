"""Trigger types and triggers: as JSON, and as facts."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from pydantic import Field

from orchestrator.automation import hook_paths
from orchestrator.automation.models import Timer, Trigger, TriggerType
from orchestrator.automation.problems import InvalidDocument
from orchestrator.automation.shown import webhooks
from orchestrator.automation.triggers import schedule_of
from orchestrator.core import words
from orchestrator.core.redaction import redacted, redacted_schema
from orchestrator.core.shown.documents import Shown
from orchestrator.core.shown.values import At, Due, Fact, Json, said


class TriggerTypeShown(Shown):
    """A kind of thing that happens."""

    ref: str
    pack: str | None = Field(description="null: Muster brings it itself.")
    description: str
    parameters_schema: dict[str, Any] = Field(
        description="JSON Schema; values that it gives for secrets are `***`."
    )
    payload_schema: dict[str, Any] = Field(description="The same, of its events.")
    retired_at: datetime | None = Field(description="Since when it takes no more events.")


class TriggerShown(Shown):
    """A type with parameters."""

    id: int
    type: str
    parameters: dict[str, Any]
    created_at: datetime
    next_fire_at: datetime | None = Field(
        description="Of a timer; null while no enabled rule waits for it, and at its end."
    )
    last_fired_at: datetime | None = Field(
        description="Of a timer: the time that was last due, or since when rules wait."
    )
    hook_address: str | None = Field(
        description="Of a webhook: where it is sent to, below the address of the API."
    )


def type_shown(row: TriggerType) -> TriggerTypeShown:
    """Convert a trigger type, loaded with its pack."""
    return TriggerTypeShown(
        ref=row.ref,
        pack=row.pack.name if row.pack else None,
        description=row.description,
        parameters_schema=redacted_schema(row.parameters_schema),
        payload_schema=redacted_schema(row.payload_schema),
        retired_at=row.retired_at,
    )


def shown(row: Trigger) -> TriggerShown:
    """Convert a trigger, loaded with its type and its timer."""
    timer = timer_of(row)
    return TriggerShown(
        id=row.pk,
        type=row.type.ref,
        parameters=redacted(row.parameters),
        created_at=row.created_at,
        next_fire_at=timer.next_fire_at if timer else None,
        last_fired_at=timer.last_fired_at if timer else None,
        hook_address=hook_address(row),
    )


def hook_address(row: Trigger) -> str | None:
    """The address that deliveries are sent to; None if it is no webhook, or another one has its
    path."""
    hook = webhooks.of_trigger(row)
    return None if hook is None else hook_paths.address_of(hook)


def timer_of(row: Trigger) -> Timer | None:
    """Its timer; None if it is none."""
    return getattr(row, "timer", None)


def next_ticks(row: Trigger, count: int, *, now: datetime) -> list[datetime]:
    """The nominal times of its next ticks; none of what is no timer, or is over."""
    if timer_of(row) is None:
        return []
    schedule, ticks = schedule_of(row), [now]
    while len(ticks) <= count and (tick := schedule.next_after(ticks[-1])) is not None:
        ticks.append(tick)
    return ticks[1:]


def parameters_line(row: Trigger) -> str:
    """Its parameters as one line; empty without any."""
    return json.dumps(redacted(row.parameters), ensure_ascii=False) if row.parameters else ""


def catch_up(row: Trigger) -> str | None:
    """The times that a timer missed and still fires, in words; None if it is no timer."""
    if timer_of(row) is None:
        return None
    try:
        schedule = schedule_of(row)
    except InvalidDocument as invalid:  # made by a release that allowed it
        return f"its schedule cannot be used: {invalid!s:.200}"
    match schedule.catch_up:
        case "all":
            return f"all, at most {schedule.max_catch_up}"
        case "none":
            return f"none older than {words.span(schedule.grace_seconds)}"
        case _:
            return "the last one only"


def situation(row: Trigger, now: datetime) -> list[Fact]:
    """The facts of a trigger: what it is, and when it fires next if it is a timer."""
    timer = timer_of(row)
    is_asleep = timer is not None and timer.next_fire_at is None
    return said(
        [
            ("Trigger", str(row.pk)),
            ("Type", row.type.ref),
            ("Description", row.type.description),
            ("Parameters", Json(redacted(row.parameters))),
            ("Webhook", hook_address(row)),
            ("Fires next", Due(timer.next_fire_at, now) if timer and timer.next_fire_at else None),
            ("Sleeps", "no enabled rule waits for it, or it is at its end" if is_asleep else None),
            ("Was last due", At(timer.last_fired_at) if timer and timer.last_fired_at else None),
            ("Fires of the times that it missed", catch_up(row)),
            ("Made", At(row.created_at)),
        ]
    )
