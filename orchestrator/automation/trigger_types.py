"""Types of triggers: those of packs, and those that Muster brings itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any

from django.db import transaction

from orchestrator.automation import polls
from orchestrator.automation.hooks import parameters as hooks
from orchestrator.automation.models import TriggerType
from orchestrator.automation.models.triggers import INVESTIGATION
from orchestrator.automation.problems import InvalidDocument, Problem, nearest_or_all
from orchestrator.core import investigations
from orchestrator.core.errors import MusterError
from orchestrator.core.models import DLQEntry, Pack
from orchestrator.core.packs import ContentReport
from orchestrator.core.states import TERMINAL, ExecutionStatus

EXECUTION = "core.execution"
SENSOR = "core.sensor"


class TypeTaken(MusterError):
    """A trigger type of this name belongs to another pack."""


@dataclass(frozen=True, kw_only=True)
class NewType:
    """A trigger type as a pack describes it."""

    ref: str
    description: str = ""
    parameters_schema: Mapping[str, Any] = field(default_factory=dict)
    payload_schema: Mapping[str, Any] = field(default_factory=dict)


_TIMES = {
    "type": "object",
    "required": ["scheduled_at", "fired_at", "missed", "timezone"],
    "properties": {
        "scheduled_at": {"type": "string", "description": "When it was due."},
        "fired_at": {"type": "string", "description": "When it was recorded."},
        "missed": {"type": "integer", "description": "How many before it were left out."},
        "timezone": {"type": "string"},
    },
}

_EXECUTION_PARAMETERS = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "actions": {
            "type": "array",
            "maxItems": 50,
            "items": {"type": "string", "maxLength": 130},
            "description": "Names of actions, in which `*` stands for any characters; "
            "without it, all.",
        },
        "statuses": {
            "type": "array",
            "items": {"enum": sorted(ExecutionStatus)},
            "default": sorted(TERMINAL),
        },
    },
}

_EXECUTION_PAYLOAD = {
    "type": "object",
    "properties": {
        name: {"type": "string"}
        for name in ("execution_id", "action_ref", "status", "was", "event", "reason", "at")
    }
    | {"attempt": {"type": "integer"}},
}

_INVESTIGATION_PARAMETERS = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "reasons": {
            "type": "array",
            "items": {"enum": sorted(DLQEntry.Reason)},
            "description": "Why it was opened; without it, whatever the reason.",
        },
        "subject_kinds": {
            "type": "array",
            "items": {"enum": ["", *sorted(investigations.kinds())]},
            "description": "What it is about, where an empty text means a letter without a "
            "subject; without it, anything.",
        },
        "names": {
            "type": "array",
            "maxItems": 50,
            "items": {"type": "string", "maxLength": 250},
            "description": "Names of subjects, such as `shop.charge` or "
            "`billing/invoice/1.0.0`, in which `*` stands for any characters; without it, all.",
        },
        "states": {
            "type": "array",
            "items": {"enum": sorted(DLQEntry.Resolution)},
            "default": [DLQEntry.Resolution.PENDING],
            "description": "`pending` when it is opened, another one when it is closed.",
        },
    },
}

_TEXT_OR_NONE = {"type": ["string", "null"]}

_INVESTIGATION_PAYLOAD = {
    "type": "object",
    "required": ["entry_id", "reason", "state", "subject_kind", "subject_name", "at"],
    "properties": {
        name: {"type": "string"}
        for name in ("entry_id", "reason", "state", "subject_kind", "subject_name", "at")
    }
    | {
        "subject_id": _TEXT_OR_NONE,
        "execution_id": _TEXT_OR_NONE | {"description": "The subject's id, if it is an execution."},
        "task_id": _TEXT_OR_NONE | {"description": "The subject's id, if it is a task."},
        "namespace": _TEXT_OR_NONE | {"description": "Of the subject's template, if it has one."},
        "detail": {
            "type": "string",
            "description": "What was wrong, without secrets; at most 2,000 characters.",
        },
        "queue": {
            "type": "string",
            "description": "The queue in which a letter died; empty for what is none.",
        },
    },
}

_SENSOR_PAYLOAD = {
    "type": "object",
    "required": ["sensor", "change"],
    "properties": {
        "sensor": {"type": "string"},
        "change": {"enum": ["failing", "lost"]},
        "failures": {"type": "integer"},
        "problem": {"type": "string"},
        "service": {"type": "string"},
    },
}

BUILT_IN: Mapping[str, NewType] = {
    each.ref: each
    for each in (
        NewType(
            ref="core.interval",
            description="Fires again and again, after the same time.",
            payload_schema=_TIMES,
        ),
        NewType(
            ref="core.cron",
            description="Fires at the times that a cron expression names.",
            payload_schema=_TIMES,
        ),
        NewType(ref="core.date", description="Fires once.", payload_schema=_TIMES),
        NewType(
            ref=EXECUTION,
            description="An execution came into one of these statuses.",
            parameters_schema=_EXECUTION_PARAMETERS,
            payload_schema=_EXECUTION_PAYLOAD,
        ),
        NewType(
            ref=INVESTIGATION,
            description="An investigation was opened, or closed.",
            parameters_schema=_INVESTIGATION_PARAMETERS,
            payload_schema=_INVESTIGATION_PAYLOAD,
        ),
        NewType(
            ref=hooks.WEBHOOK,
            description="Somebody sent something to a path of the API.",
            parameters_schema=hooks.SCHEMA,
            payload_schema=hooks.PAYLOAD,
        ),
        NewType(
            ref=SENSOR,
            description="A sensor fails again and again, or its service was lost.",
            parameters_schema={"type": "object", "additionalProperties": False},
            payload_schema=_SENSOR_PAYLOAD,
        ),
        NewType(
            ref=polls.HTTP,
            description="Something at a URL is new, or has changed.",
            parameters_schema=polls.HTTP_PARAMETERS,
            payload_schema=polls.HTTP_PAYLOAD,
        ),
        NewType(
            ref=polls.FILE,
            description="A file was created, changed or deleted, or has a new line.",
            parameters_schema=polls.FILE_PARAMETERS,
            payload_schema=polls.FILE_PAYLOAD,
        ),
    )
}
"""Their parameters are checked by `schedules`, those of timers."""


@transaction.atomic
def install_types(news: Sequence[NewType], *, pack: Pack, now: datetime) -> ContentReport:
    """Bring the trigger types of a pack in line with these. One that is no longer among them takes
    no more events. Raises TypeTaken."""
    # no_key: events of these types are recorded meanwhile, by who has what is locked after this
    rows = TriggerType.objects.select_for_update(no_key=True).filter(pack=pack)
    owned = {row.ref: row for row in rows}
    refs = [new.ref for new in news]
    for other in TriggerType.objects.filter(ref__in=refs).exclude(pack=pack):
        raise TypeTaken(f"The trigger type {other} belongs to {other.pack or 'Muster itself'}.")
    created, updated, unchanged = [], [], []
    for new in news:
        row = owned.get(new.ref)
        if row is None:
            TriggerType.objects.create(pack=pack, updated_at=now, **vars(new))
            created.append(new.ref)
        elif _change(row, new, now):
            updated.append(new.ref)
        else:
            unchanged.append(new.ref)
    gone = [row for ref, row in owned.items() if ref not in refs and row.retired_at is None]
    TriggerType.objects.filter(pk__in=[row.pk for row in gone]).update(retired_at=now)
    return ContentReport(
        tuple(created), tuple(updated), tuple(unchanged), tuple(row.ref for row in gone)
    )


def install_built_in(*, now: datetime) -> None:
    """Add the types that Muster brings itself, or bring them up to date."""
    for new in BUILT_IN.values():
        row, is_new = TriggerType.objects.get_or_create(
            ref=new.ref, defaults={**vars(new), "updated_at": now}
        )
        if not is_new:
            _change(row, new, now)


def _change(row: TriggerType, new: NewType, now: datetime) -> bool:
    """Copy the description into the row; returns False if nothing differs."""
    values = {name.name: getattr(new, name.name) for name in fields(NewType)} | {"retired_at": None}
    if all(getattr(row, name) == value for name, value in values.items()):
        return False
    TriggerType.objects.filter(pk=row.pk).update(**values, updated_at=now)
    return True


def type_called(ref: str) -> TriggerType:
    """The type of this name that takes events. Raises InvalidDocument."""
    usable = TriggerType.objects.filter(retired_at__isnull=True)
    found = usable.filter(ref=ref).first()
    if found is None:
        known = usable.values_list("ref", flat=True)
        near = nearest_or_all(ref, known)
        message = f"no trigger type is called {ref!r:.140}; {near}"
        raise InvalidDocument([Problem(("type",), message)])
    return found
