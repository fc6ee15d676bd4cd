"""Feeds of automation: what is said of events, rules, answers and sensors to who listens."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from orchestrator.automation.models import Assignment, Enforcement, Event, Rule, Trigger
from orchestrator.core.authority import Place
from orchestrator.core.frame import PACKS
from orchestrator.core.news import About


def events(ids: Collection[UUID]) -> dict[UUID, About]:
    rows = Event.objects.filter(pk__in=ids).values_list("pk", "type_ref", "sent_by")
    return {id: About(str(id), Place.of_ref(PACKS, ref), owner) for id, ref, owner in rows}


def enforcements(ids: Collection[UUID]) -> dict[UUID, About]:
    rows = Enforcement.objects.filter(pk__in=ids).values_list("pk", "rule__ref")
    return {id: About(str(id), Place.of_ref(PACKS, ref)) for id, ref in rows}


def rules(ids: Collection[int]) -> dict[int, About]:
    return {rule.pk: About(rule.ref, rule.place, state=_of_rule(rule)) for rule in _rules(ids)}


def _rules(ids: Collection[int]) -> list[Rule]:
    needed = ("ref", "enabled_by_pack", "enabled_override", "retired_at")
    return list(Rule.objects.filter(pk__in=ids).only(*needed))


def _of_rule(rule: Rule) -> str:
    if rule.retired_at is not None:
        return "retired"
    return "enabled" if rule.is_enabled else "disabled"


def triggers(ids: Collection[int]) -> dict[int, About]:
    rows = Trigger.objects.filter(pk__in=ids).values_list("pk", "type__ref")
    return {id: About(str(id), Place.of_ref(PACKS, ref)) for id, ref in rows}


def sensors(ids: Collection[UUID]) -> dict[UUID, About]:
    rows = Assignment.objects.filter(pk__in=ids).values_list("pk", "sensor__ref", "state")
    return {id: About(ref, Place.of_ref(PACKS, ref), state=state) for id, ref, state in rows}
