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

from orchestrator.automation import hook_paths, polls, schedules, trigger_types
from orchestrator.automation.hooks.parameters import WEBHOOK
from orchestrator.automation.models import Rule, Timer, Trigger, TriggerType, Watermark
from orchestrator.automation.models.triggers import INVESTIGATION
from orchestrator.automation.problems import InvalidDocument, Problem
from orchestrator.automation.schedules.parsing import DATE
from orchestrator.automation.trigger_types import EXECUTION
from orchestrator.core import json_values, packs
from orchestrator.core.errors import NotFound
from orchestrator.core.models import DLQEntryEvent, ExecutionEvent, Pack
from orchestrator.core.schemas import canonical
from orchestrator.core.states import TERMINAL, ExecutionStatus

History = ExecutionEvent | DLQEntryEvent

HISTORIES: Mapping[str, type[History]] = {EXECUTION: ExecutionEvent, INVESTIGATION: DLQEntryEvent}
"""The histories that triggers of these types follow, see `following`."""


class UnknownTrigger(NotFound):
    """No trigger has this id, or this type and these parameters."""


def ensure(
    type_ref: str,
    parameters: Mapping[str, Any],
    *,
    now: datetime,
    by_rule: str = "",
    by_pack: Pack | None = None,
) -> Trigger:
    """The trigger of this type with these parameters, made if there is none yet.

    `by_rule`, `by_pack`: for whom, if it takes the path of another webhook; see `hook_paths`.
    Raises InvalidDocument, with the places `type` and `parameters`.
    """
    type = trigger_types.type_called(type_ref)
    if found := _problems(type, parameters):
        raise InvalidDocument(found)
    with transaction.atomic():
        trigger, is_new = Trigger.objects.get_or_create(
            type=type,
            digest=digest_of(parameters),
            defaults={"parameters": dict(parameters), "created_at": now},
        )
        if is_new and type.ref in schedules.TYPES:
            Timer.objects.create(trigger=trigger)
        if type.ref == WEBHOOK:
            hook_paths.claim(trigger, by_rule=by_rule, by_pack=by_pack)
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
    if trigger.type.ref in HISTORIES:
        _follow_history(trigger, wanted)
        return
    if trigger.type.ref == WEBHOOK:
        _follow_hook(trigger)
        return
    if trigger.type.ref in polls.TYPES:
        polls.follow(trigger, wanted=wanted, now=now)
        return
    timer = Timer.objects.select_for_update(no_key=True).filter(trigger=trigger).first()
    if timer is None:
        return
    is_awake = timer.next_fire_at is not None
    if wanted and not is_awake:
        _wake(timer, trigger, now)
    elif is_awake and not wanted:
        Timer.objects.filter(pk=timer.pk).update(next_fire_at=None)


def _follow_hook(trigger: Trigger) -> None:
    """Close a hook whose last rule was retired. While one is only disabled, events are recorded."""
    if not Rule.objects.filter(trigger=trigger, retired_at__isnull=True).exists():
        hook_paths.close(trigger)


def _follow_history(trigger: Trigger, wanted: bool) -> None:
    if not wanted:
        Watermark.objects.filter(trigger=trigger).delete()
        return
    newest = newest_of(HISTORIES[trigger.type.ref])
    is_of_executions = trigger.type.ref == EXECUTION
    mark = {
        "read_id": newest,
        "seen_id": newest,
        "beyond_ends": is_of_executions and not wanted_statuses(trigger) <= TERMINAL,
    }
    Watermark.objects.get_or_create(trigger=trigger, defaults=mark)


def newest_of(history: type[History]) -> int:
    """The id of the newest row of a history; 0 if it has none."""
    return history._default_manager.aggregate(newest=Max("pk"))["newest"] or 0


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


def problems(
    type_ref: str, schema: Mapping[str, Any], parameters: Mapping[str, Any]
) -> list[Problem]:
    """Find what is wrong with the parameters of a trigger, whatever this installation has."""
    faults = [
        Problem(("parameters",), f"{place or 'the whole'} {what}")
        for place, what in json_values.faults(dict(parameters))
    ]
    if faults:
        return faults
    if type_ref in schedules.TYPES:
        try:
            schedules.parse(type_ref, parameters)
        except InvalidDocument as invalid:
            return [problem.below("parameters") for problem in invalid.problems]
    found = packs.validate_value(schema, dict(parameters))
    refused = [Problem(tuple(steps_of(each.pointer)), each.message) for each in found]
    if not refused and type_ref == WEBHOOK:
        refused = list(hook_paths.problems(parameters))
    if not refused and type_ref in polls.TYPES:
        refused = list(polls.problems(type_ref, parameters))
    return [each.below("parameters") for each in refused]


def _problems(type: TriggerType, parameters: Mapping[str, Any]) -> list[Problem]:
    found = problems(type.ref, type.parameters_schema, parameters)
    if not found and type.ref in polls.TYPES:
        refused = polls.key_problems(type.ref, parameters)
        found = [each.below("parameters") for each in refused]
    return found


def steps_of(pointer: str) -> list[str]:
    """The path of a JSON pointer."""
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]
