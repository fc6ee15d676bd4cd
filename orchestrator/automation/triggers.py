"""Triggers, and when the timers among them fire next.

triggers.ensure("core.cron", {"expression": "0 5 * * *"}, now=now)   # the row with these parameters
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import Max

from orchestrator.automation import schedules, trigger_types
from orchestrator.automation.models import Rule, Timer, Trigger, TriggerType, Watermark
from orchestrator.automation.problems import InvalidDocument, Problem
from orchestrator.automation.schedules.parsing import DATE
from orchestrator.automation.trigger_types import EXECUTION
from orchestrator.core import json_values, packs
from orchestrator.core.errors import NotFound
from orchestrator.core.models import ExecutionEvent
from orchestrator.core.schemas import canonical
from orchestrator.core.states import TERMINAL, ExecutionStatus


class UnknownTrigger(NotFound):
    """No trigger has this id, or this type and these parameters."""


def ensure(type_ref: str, parameters: Mapping[str, Any], *, now: datetime) -> Trigger:
    """The trigger of this type with these parameters, made if there is none yet.

    Raises InvalidDocument, with the places `type` and `parameters`.
    """
    type = trigger_types.type_called(type_ref)
    if problems := _problems(type, parameters):
        raise InvalidDocument(problems)
    with transaction.atomic():
        trigger, is_new = Trigger.objects.get_or_create(
            type=type,
            digest=digest_of(parameters),
            defaults={"parameters": dict(parameters), "created_at": now},
        )
        if is_new and type.ref in schedules.TYPES:
            Timer.objects.create(trigger=trigger)
    return trigger


def exists(type_ref: str, parameters: Mapping[str, Any]) -> bool:
    """Return True if there is a trigger of this type with these parameters."""
    return Trigger.objects.filter(type__ref=type_ref, digest=digest_of(parameters)).exists()


def find(type_ref: str, parameters: Mapping[str, Any] | None = None) -> Trigger:
    """The trigger of this type with these parameters. Raises UnknownTrigger."""
    wanted = dict(parameters or {})
    found = Trigger.objects.filter(type__ref=type_ref, digest=digest_of(wanted))
    trigger = found.select_related("type").first()
    if trigger is None:
        raise UnknownTrigger(
            f"No trigger of the type {type_ref} has the parameters {wanted!r:.200}"
        )
    return trigger


def digest_of(parameters: Mapping[str, Any]) -> str:
    """Return the same for equal parameters, and for no others: 1 is 1.0, and their order does not
    matter."""
    text = str(canonical.key(dict(parameters))[0])
    return hashlib.sha256(text.encode()).hexdigest()


def schedule_of(trigger: Trigger) -> schedules.Schedule:
    """The schedule of a timer's trigger, loaded with its type. Raises InvalidDocument if it is no
    longer possible."""
    return schedules.parse(trigger.type.ref, trigger.parameters, created_at=trigger.created_at)


def follow_rules(trigger: Trigger, *, now: datetime) -> None:
    """Let what Muster watches itself sleep while no enabled rule waits for it, and wake it
    otherwise, in the transaction that changes a rule. What happened while it slept does not count;
    a date that has not fired fires late."""
    wanted = Rule.objects.enabled().filter(trigger=trigger).exists()
    if trigger.type.ref == EXECUTION:
        _follow_executions(trigger, wanted)
        return
    timer = Timer.objects.select_for_update(no_key=True).filter(trigger=trigger).first()
    if timer is None:
        return
    is_awake = timer.next_fire_at is not None
    if wanted and not is_awake:
        _wake(timer, trigger, now)
    elif is_awake and not wanted:
        Timer.objects.filter(pk=timer.pk).update(next_fire_at=None)


def _follow_executions(trigger: Trigger, wanted: bool) -> None:
    if not wanted:
        Watermark.objects.filter(trigger=trigger).delete()
        return
    newest = ExecutionEvent.objects.aggregate(newest=Max("pk"))["newest"] or 0
    mark = {
        "read_id": newest,
        "seen_id": newest,
        "beyond_ends": not wanted_statuses(trigger) <= TERMINAL,
    }
    Watermark.objects.get_or_create(trigger=trigger, defaults=mark)


def wanted_statuses(trigger: Trigger) -> frozenset[ExecutionStatus]:
    """The statuses that a trigger of the type `core.execution` reports."""
    named = trigger.parameters.get("statuses")
    return frozenset(map(ExecutionStatus, named)) if named is not None else TERMINAL


def _wake(timer: Timer, trigger: Trigger, now: datetime) -> None:
    """Look at it when its next tick is due. Only a date that has not fired fires late."""
    last = timer.last_fired_at if trigger.type.ref == DATE else now
    due = schedule_of(trigger).due(last, now)
    next_at = now if due.ticks else due.next_at
    Timer.objects.filter(pk=timer.pk).update(next_fire_at=next_at, last_fired_at=last)


def _problems(type: TriggerType, parameters: Mapping[str, Any]) -> list[Problem]:
    faults = [
        Problem(("parameters",), f"{place or 'the whole'} {what}")
        for place, what in json_values.faults(dict(parameters))
    ]
    if faults:
        return faults
    if type.ref in schedules.TYPES:
        try:
            schedules.parse(type.ref, parameters)
        except InvalidDocument as invalid:
            return [problem.below("parameters") for problem in invalid.problems]
    found = packs.validate_value(type.parameters_schema, dict(parameters))
    return [Problem(("parameters", *steps_of(each.pointer)), each.message) for each in found]


def steps_of(pointer: str) -> list[str]:
    """The path of a JSON pointer."""
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]
