"""The content of other packs that a new version of a pack would break.

Core knows actions; what refers to them, and to what else packs hold, the apps know that have it:
each brings `pack_dependents`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from orchestrator.core import authority, expressions, frame
from orchestrator.core.authority import PermissionMissing, Place, Principal
from orchestrator.core.errors import Conflict
from orchestrator.core.frame import PackDependents
from orchestrator.core.packs import parameters as parameters_module
from orchestrator.core.packs.definitions import ActionDefinition, PackDefinition


@dataclass(frozen=True)
class Broken:
    """Something of another pack that would work no more."""

    kind: str
    """`rule`, `template`."""
    ref: str
    why: str

    def __str__(self) -> str:
        return f"{self.kind} {self.ref}: {self.why}"


@dataclass(frozen=True)
class NewVersion:
    """A pack as it is going to be: what dependents are compared with."""

    pack: str
    actions: Mapping[str, ActionDefinition] = field(default_factory=dict)
    """By ref."""
    contents: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)

    def owns(self, ref: str) -> bool:
        return ref.partition(".")[0] == self.pack


def problem_with(
    parameters: Mapping[str, Any], action: ActionDefinition, *, before: Mapping[str, Any]
) -> str:
    """The reason why a request with these parameters, of which some may be expressions, would be
    refused by the new version of an action; empty if nothing speaks against it. `before`: the
    schema that it has now: what does not fit that either is not broken by this."""
    schema = action.parameters_schema
    for name in schema.get("required", ()):
        if name not in parameters and name not in before.get("required", ()):
            return f"{action.ref} needs the parameter {name!r}"
    new, old = schema.get("properties", {}), before.get("properties", {})
    for name, value in parameters.items():
        if name not in new and name in old:
            if schema.get("additionalProperties", True) is False:
                return f"{action.ref} has no parameter {name!r} any more"
        elif name in new and new[name] != old.get(name) and (why := _misfit(value, new[name])):
            return f"{action.ref} takes another {name!r}: {why}"
        elif name in new and any(expressions.texts(value)):
            types = new[name].get("type"), old.get(name, {}).get("type")
            if None not in types and types[0] != types[1]:
                return f"{action.ref} takes another {name!r}: {types[0]}, not {types[1]}"
    return ""


def _misfit(value: Any, schema: Any) -> str:
    """The reason why a value without expressions does not fit a schema; empty if there is none."""
    if any(expressions.texts(value)) or not isinstance(schema, dict):
        return ""
    return next((each.message for each in parameters_module.validate_value(schema, value)), "")


class WouldBreak(Conflict):
    """Rules or templates of other packs would break, and nothing was installed."""

    kind = "would-break"

    def __init__(self, broken: Sequence[Broken], *, seen_by: Principal | None = None) -> None:
        self.broken = tuple(each for each in broken if _may(seen_by, each, "reads"))
        texts = list(map(str, self.broken))
        if hidden := len(broken) - len(self.broken):
            texts.append(f"{hidden} that the caller may not see")
        super().__init__("; ".join(texts))


def find(definition: PackDefinition) -> list[Broken]:
    """The content that the new version would break."""
    new = NewVersion(
        definition.name, {each.ref: each for each in definition.actions}, definition.contents
    )
    return _find(new)


def of_removal(pack: str) -> list[Broken]:
    """The content that the removal of a pack would break."""
    return _find(NewVersion(pack))


def _find(new: NewVersion) -> list[Broken]:
    dependents = frame.collect(lambda app: app.pack_dependents)
    return [broken for each in dependents for broken in each.broken(new)]


def disable(
    broken: Sequence[Broken], *, principal: Principal | None, now: datetime
) -> tuple[str, ...]:
    """Disable all of these; returns their refs. Raises PermissionMissing if the principal may not
    disable one of them."""
    for one in broken:
        if not _may(principal, one, "disables"):
            raise PermissionMissing(
                _dependents(one.kind).disables, f"Disabling a {one.kind} that would break"
            )
    for each in frame.collect(lambda app: app.pack_dependents):
        own = [one.ref for one in broken if one.kind == each.kind]
        if own:
            each.disable(own, now=now)
    return tuple(one.ref for one in broken)


def _may(principal: Principal | None, broken: Broken, what: str) -> bool:
    """Return True if the principal `reads` or `disables` it, or is Muster itself."""
    if principal is None:
        return True
    dependents = _dependents(broken.kind)
    place = Place.of_ref(dependents.about, broken.ref)
    return authority.may(principal, getattr(dependents, what), place)


def _dependents(kind: str) -> PackDependents:
    return next(
        each for each in frame.collect(lambda app: app.pack_dependents) if each.kind == kind
    )
