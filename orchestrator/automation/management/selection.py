"""Selection of rules, sensors, triggers, events and enforcements by the text that a user types."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from orchestrator.automation.models import Enforcement, Event, Rule, Sensor, Trigger, TriggerType
from orchestrator.automation.replaying import UnknownEvent
from orchestrator.automation.rules import UnknownRule
from orchestrator.automation.sensors import catalogue
from orchestrator.automation.triggers import UnknownTrigger
from orchestrator.core.cursors import ID_MAX
from orchestrator.core.errors import NotFound
from orchestrator.core.management.selection import NAMES_LIMIT, beginning_with
from orchestrator.core.words import did_you_mean

RULE = ("trigger__type", "revision", "owner__user", "pack")
"""The relations from a rule to the other rows of which its page says something."""


class UnknownEnforcement(NotFound):
    """No enforcement has this id."""


class UnknownTriggerType(NotFound):
    """No trigger type has this name."""


def rule(ref: str, rows: QuerySet[Rule]) -> Rule:
    """The rule of this name among these. Raises UnknownRule."""
    if (row := rows.select_related(*RULE).filter(ref=ref).first()) is None:
        names = rows.filter(retired_at__isnull=True).values_list("ref", flat=True)
        raise UnknownRule(f"No rule is called {ref!r}{_hint(ref, names, 'rule list')}")
    return row


def sensor(ref: str, rows: QuerySet[Sensor]) -> Sensor:
    """The sensor of this name among these. Raises UnknownSensor."""
    if (row := rows.select_related(*catalogue.RELATED).filter(ref=ref).first()) is None:
        names = rows.filter(retired_at__isnull=True).values_list("ref", flat=True)
        hint = _hint(ref, names, "sensors list")
        raise catalogue.UnknownSensor(f"No sensor is called {ref!r}{hint}")
    return row


def trigger_type(ref: str, rows: QuerySet[TriggerType]) -> TriggerType:
    """The trigger type of this name among these. Raises UnknownTriggerType."""
    if (row := rows.select_related("pack").filter(ref=ref).first()) is None:
        names = rows.values_list("ref", flat=True)
        hint = _hint(ref, names, "trigger types")
        raise UnknownTriggerType(f"No trigger type is called {ref!r}{hint}")
    return row


def trigger(text: str, rows: QuerySet[Trigger]) -> Trigger:
    """The trigger among these with this number. Raises UnknownTrigger."""
    is_number = text.isascii() and text.isdigit() and int(text[:20]) <= ID_MAX
    found = rows.select_related("type", "timer", "webhook")
    if not is_number or (row := found.filter(pk=int(text)).first()) is None:
        raise UnknownTrigger(f"No trigger has the number {text!r}; see: manage.py trigger list")
    return row


def event(text: str, rows: QuerySet[Event]) -> Event:
    """The event among these whose id is, or begins with, this text. Raises UnknownEvent and
    AmbiguousPrefix."""
    found = rows.select_related("trigger__type")
    return found.get(pk=beginning_with(text, rows.values_list("pk"), "pk", UnknownEvent))


def enforcement_id(text: str, rows: QuerySet[Enforcement]) -> UUID:
    """The id of the enforcement among these whose id is, or begins with, this text. Raises
    UnknownEnforcement and AmbiguousPrefix."""
    return beginning_with(text, rows.values_list("pk"), "pk", UnknownEnforcement)


def _hint(typed: str, names: QuerySet[Any, str], listing: str) -> str:
    return did_you_mean(typed, names[:NAMES_LIMIT]) or f"; see: manage.py {listing}"
