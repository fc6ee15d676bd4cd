"""Rules that a new version of a pack, or its removal, would break, and work that it still has."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from orchestrator.automation import rules
from orchestrator.automation.models import Enforcement, Rule, Sensor, Trigger, TriggerType
from orchestrator.automation.sensors import catalogue
from orchestrator.core.authority import Principal
from orchestrator.core.models import Action
from orchestrator.core.packs import Broken, NewVersion, problem_with
from orchestrator.core.packs.parameters import validate_value

PATH = re.compile(r"\btrigger((?:\.[A-Za-z_]\w*|\[(?:'[^']*'|\"[^\"]*\")\])+)")
STEP = re.compile(r"\.([A-Za-z_]\w*)|\[(?:'([^']*)'|\"([^\"]*)\")\]")
TRIGGERS = "triggers"
"""The folder of trigger types in a pack."""

Schema = Mapping[str, Any]


def broken(new: NewVersion) -> list[Broken]:
    """The rules of other packs that would work no more: their action or trigger type is gone, does
    not take their parameters, or has no such value in its payload."""
    actions = dict(
        Action.objects.filter(pack__name=new.pack).values_list("ref", "parameters_schema")
    )
    types = dict(
        TriggerType.objects.filter(pack__name=new.pack).values_list("ref", "payload_schema")
    )
    found = Rule.objects.enabled().exclude(pack__name=new.pack)
    return [
        Broken("rule", rule.ref, why)
        for rule in found.select_related("revision", "trigger__type").order_by("ref")
        if (why := next(_problems(rule, new, actions, types), ""))
    ]


def _problems(
    rule: Rule, new: NewVersion, actions: Mapping[str, Schema], types: Mapping[str, Schema]
) -> Iterator[str]:
    said = rule.current
    if (before := actions.get(said.action_ref)) is not None:
        action = new.actions.get(said.action_ref)
        if action is None:
            yield f"its action {said.action_ref} is gone"
        elif why := problem_with(said.parameters, action, before=before):
            yield why
    ref = rule.trigger.type.ref
    if (before := types.get(ref)) is not None:
        values = {f"{new.pack}.{each['name']}": each for each in new.contents.get(TRIGGERS, ())}
        if ref not in values:
            yield f"its trigger type {ref} is gone"
            return
        if why := _refused(rule.trigger, values[ref].get("parameters_schema", {})):
            yield f"{ref}: its trigger's {why}"
        after = values[ref].get("payload_schema", {})
        for path in sorted(set(_paths([said.criteria, said.parameters]))):
            if why := _lost(path, before, after):
                yield f"{ref}: {why}"


def _refused(trigger: Trigger, after: Schema) -> str:
    """The reason why the new version of its type refuses the parameters of a trigger that the
    present one takes; empty if it does not."""
    before = trigger.type.parameters_schema
    if after == before or any(validate_value(before, trigger.parameters)):
        return ""
    problems = validate_value(after, trigger.parameters)
    return next((f"parameters: {each.message}" for each in problems), "")


def _paths(value: Any) -> Iterator[tuple[str, ...]]:
    """The places in the payload that criteria and parameters read."""
    if isinstance(value, str):
        for match in PATH.finditer(value):
            yield tuple("".join(parts) for parts in STEP.findall(match[1]))
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _paths(key)
            yield from _paths(item)
    elif isinstance(value, Sequence):
        for item in value:
            yield from _paths(item)


def _lost(path: tuple[str, ...], before: Schema, after: Schema) -> str:
    """The reason why a place that the old schema describes is lost in the new one; empty if it is
    not."""
    for depth, step in enumerate(path):
        old, new = _properties(before), _properties(after)
        if step not in old:
            return ""  # the schema says nothing of it, now as before
        name = ".".join(path[: depth + 1])
        if step not in new:
            return f"its payload has no {name!r} any more"
        before, after = old[step], new[step]
        types = before.get("type"), after.get("type")
        if types[0] != types[1]:
            return f"its {name!r} is {types[1] or 'anything'}, not {types[0] or 'anything'}"
    return ""


def _properties(schema: Schema) -> Mapping[str, Any]:
    properties = schema.get("properties")
    return properties if isinstance(properties, Mapping) else {}


def disable(refs: Collection[str], *, now: datetime) -> None:
    """Have no event ask these rules, until somebody enables them."""
    for ref in refs:
        rules.disable(ref, now=now)


# --- the removal of a pack -----------------------------------------------------------------------


def open_events(pack: str, principal: Principal | None, permission: str) -> list[str]:
    """Enforcements of the pack's rules that have no answer yet, the oldest first."""
    rows = Enforcement.objects.open().filter(rule__pack__name=pack).order_by("pk")
    if principal is not None:
        rows = rows.visible_to(principal, permission)
    return [str(pk) for pk in rows.values_list("pk", flat=True)]


def cancel_events(ids: Sequence[str], *, by: str, now: datetime) -> None:
    """Leave them: each gets its answer within seconds."""


def needed_releases() -> set[int]:
    """Those that sensors run; an enforcement asks for the release that is installed."""
    rows = Sensor.objects.in_use().filter(release__isnull=False)
    return set(rows.values_list("release_id", flat=True))


def pause(pack: str, *, now: datetime) -> None:
    """End the pack's sensors, and have no event ask its rules any more. An operator's word is kept
    for the day on which the pack is installed again."""
    catalogue.retire_all(pack, now=now, actor="pack remove")
    present = Rule.objects.filter(pack__name=pack, retired_at__isnull=True)
    for ref in present.values_list("ref", flat=True):
        rules.retire(ref, now=now)
