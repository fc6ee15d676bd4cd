"""A shop whose orders are shipped: a trigger type, rules, and events."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any
from uuid import UUID

import pytest

from orchestrator.automation import enforcing, matching, recording, rules, trigger_types, triggers
from orchestrator.automation.models import Enforcement, Event, Rule, Trigger
from orchestrator.automation.recording import NewEvent
from orchestrator.automation.rules import NewRule
from orchestrator.automation.trigger_types import NewType
from orchestrator.core.authority import Principal
from orchestrator.core.models import Pack
from tests.factories import NOW, make_action

ACTOR = "executor"
ORDER = "shop.order"
SCHEMA = {"type": "object", "properties": {"number": {"type": "integer"}}}


def make_type(ref: str = ORDER, **values: Any) -> None:
    name = ref.partition(".")[0]
    known = {"version": "1.0.0", "path": "/nowhere", "installed_at": NOW}
    pack, _ = Pack.objects.get_or_create(name=name, defaults=known)
    new = NewType(ref=ref, payload_schema=SCHEMA, **values)
    trigger_types.install_types([new], pack=pack, now=NOW)


def make_trigger(ref: str = ORDER, **parameters: Any) -> Trigger:
    """The trigger of this type with these parameters."""
    if ref not in trigger_types.BUILT_IN:
        make_type(ref)
    else:
        trigger_types.install_built_in(now=NOW)
    return triggers.ensure(ref, parameters, now=NOW)


def make_rule(
    ref: str = "shop.ship",
    *,
    trigger: Trigger | None = None,
    now: datetime = NOW,
    principal: Principal | None = None,
    **values: Any,
) -> Rule:
    """A rule that echoes the number of an order."""
    trigger = trigger or make_trigger()
    action = make_action(values.pop("action_ref", "core.echo"))
    known: dict[str, Any] = {"parameters": {"text": "order {{ trigger.number }}"}}
    new = NewRule(
        ref=ref,
        trigger_type=trigger.type.ref,
        trigger_parameters=trigger.parameters,
        action_ref=action.ref,
        **{**known, **values},
    )
    return rules.install(new, now=now, principal=principal).rule


def record(*numbers: int, now: datetime = NOW, **values: Any) -> list[UUID]:
    """Orders with these numbers, which are their keys."""
    trigger = values.pop("trigger", None) or make_trigger()
    news = [
        NewEvent(
            trigger=trigger,
            payload={"number": number},
            key=f"order {number}",
            source="api",
            **values,
        )
        for number in numbers
    ]
    return [each.event_id for each in recording.record_many(news, now=now)]


def record_payloads(*payloads: dict[str, Any], now: datetime = NOW) -> list[UUID]:
    """Orders with these payloads, and no keys."""
    trigger = make_trigger()
    news = [NewEvent(trigger=trigger, payload=payload, source="api") for payload in payloads]
    return [each.event_id for each in recording.record_many(news, now=now)]


def match(ids: Iterable[UUID], *, now: datetime = NOW) -> list[Enforcement]:
    """Ask the rules, and carry nothing out; the enforcements of these events."""
    wanted = list(ids)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(matching, "ENFORCED_AT_ONCE", -1)
        matching.match(wanted, now=now, actor=ACTOR)
    return list(Enforcement.objects.filter(event__in=wanted).order_by("pk"))


def enforce(rows: Iterable[Enforcement], *, now: datetime = NOW) -> list[Enforcement]:
    """Settle them; the rows as they are then."""
    ids = [row.pk for row in rows]
    enforcing.enforce(ids, now=now, actor=ACTOR)
    return list(Enforcement.objects.filter(pk__in=ids).order_by("pk"))


def answer(*numbers: int, now: datetime = NOW, **values: Any) -> list[Enforcement]:
    """Orders with these numbers, and what the rules answered."""
    return enforce(match(record(*numbers, now=now, **values), now=now), now=now)


def event(id: UUID) -> Event:
    return Event.objects.get(pk=id)
