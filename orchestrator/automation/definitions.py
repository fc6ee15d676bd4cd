"""Trigger types and rules as files of packs, and as JSON: read, and checked without a database.

Rules have the shape of StackStorm's: `trigger`, `criteria`, `action`, and `type: backstop`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from orchestrator.automation import criteria, options, parameters, triggers
from orchestrator.automation.problems import InvalidDocument, Problem, nearest_or_all, place_of
from orchestrator.automation.rules import NewRule
from orchestrator.automation.trigger_types import BUILT_IN, NewType
from orchestrator.automation.triggers import steps_of
from orchestrator.core import expressions, key_references, packs
from orchestrator.core.packs import PackFiles, Source
from orchestrator.core.packs.keys import MAPPING, TEXT, YES_OR_NO, Key, check, is_name, one_of
from orchestrator.core.packs.parameters import schema_problems

NAME = re.compile(r"[a-z0-9_.-]+")
REF = re.compile(r"[a-z0-9_-]+\.[a-z0-9_.-]+")
STANDARD, BACKSTOP = RULE_TYPES = ("standard", "backstop")
BUILT_IN_PACK = "core"
SCHEMAS = ("parameters_schema", "payload_schema")
OPTION_KEYS = tuple(name for name in options.OPTIONS if name != BACKSTOP)


def new_type(values: Mapping[str, Any], *, pack: str) -> NewType:
    """The trigger type in a checked file of a pack."""
    schemas = {name: values.get(name, {}) for name in SCHEMAS}
    ref = f"{pack}.{values['name']}"
    return NewType(ref=ref, description=values.get("description", ""), **schemas)


def new_rule(values: Mapping[str, Any], *, ref: str) -> NewRule:
    """The rule in a checked document."""
    trigger, action = values["trigger"], values["action"]
    return NewRule(
        ref=ref,
        description=values.get("description", ""),
        enabled=values.get("enabled", True),
        trigger_type=trigger["type"],
        trigger_parameters=trigger.get("parameters", {}),
        criteria=values.get("criteria") or {},
        action_ref=action["ref"],
        parameters=action.get("parameters", {}),
        options=_options(values),
    )


def check_type(file: Source) -> None:
    """Note all problems with the trigger type in this file."""
    if not check(file, TYPE_KEYS):
        return
    for name in SCHEMAS:
        if isinstance(schema := file.value.get(name), dict):
            found = (Problem(each.where, each.message) for each in schema_problems(schema))
            _note(file, found, name)


def check_rule(file: Source) -> None:
    """Note all problems with the rule in this file that it has whatever is installed."""
    if not check(file, RULE_KEYS):
        return
    has_trigger = check(file, TRIGGER_KEYS, ("trigger",)) if "trigger" in file.value else False
    has_action = check(file, ACTION_KEYS, ("action",)) if "action" in file.value else False
    _note(file, _criteria_problems(file.value.get("criteria", {})), "criteria")
    _note(file, options.problems(_options(file.value)))
    if has_trigger:
        _note(file, _trigger_problems(file.at(("trigger",))), "trigger")
    if has_action and isinstance(given := file.at(("action", "parameters"), {}), dict):
        _note(file, parameters.check(given), "action", "parameters")


def check_rules_of_pack(files: PackFiles) -> None:
    """Note what rules name of their own pack, or of Muster, that does not exist, and parameters
    that a type or an action of their own pack refuses."""
    types = {f"{files.name}.{each.at(('name',))}": each for each in files.contents["triggers"]}
    for file in files.contents["rules"]:
        kind, ref = _text_at(file, "trigger", "type"), _text_at(file, "action", "ref")
        if kind in types:
            _note(file, _refused_by_type(types[kind], file), "trigger", "parameters")
        elif _pack_of(kind) in (files.name, BUILT_IN_PACK) and kind not in BUILT_IN:
            near = nearest_or_all(kind, [*types, *BUILT_IN])
            file.problem(
                ("trigger", "type"), f"trigger.type: no trigger type is called {kind!r}; {near}"
            )
        if ref in files.actions:
            _note(file, _refused_by_action(files.actions[ref], file), "action", "parameters")
        elif _pack_of(ref) == files.name:
            near = nearest_or_all(ref, files.actions)
            file.problem(("action", "ref"), f"action.ref: no action is called {ref!r}; {near}")


def _options(values: Mapping[str, Any]) -> dict[str, Any]:
    """The options that the keys of a document say."""
    said = {name: values[name] for name in OPTION_KEYS if name in values}
    return said | ({"backstop": True} if values.get("type") == BACKSTOP else {})


def _criteria_problems(document: Any) -> tuple[Problem, ...]:
    try:
        criteria.compile_criteria(document)
    except InvalidDocument as invalid:
        return invalid.problems
    return ()


def _trigger_problems(trigger: Mapping[str, Any]) -> list[Problem]:
    """Problems with a trigger of a type that Muster brings."""
    kind, given = trigger.get("type"), trigger.get("parameters", {})
    if isinstance(kind, str) and isinstance(given, dict) and kind in BUILT_IN:
        return triggers.problems(kind, BUILT_IN[kind].parameters_schema, given)
    return []


def _refused_by_type(type: Source, file: Source) -> list[Problem]:
    given = file.at(("trigger", "parameters"), {})
    return _refused(type.at(("parameters_schema",), {}), given)


def _refused_by_action(action: Source, file: Source) -> list[Problem]:
    """Problems with parameters that are the same for every event."""
    given = file.at(("action", "parameters"), {})
    if any(expressions.texts(given)) or any(key_references.found(given)):
        return []
    return _refused(action.at(("parameters",), {}), given)


def _refused(schema: Any, given: Any) -> list[Problem]:
    if not isinstance(schema, dict) or not isinstance(given, dict):
        return []
    found = packs.validate_value(schema, given)
    return [Problem(tuple(steps_of(each.pointer)), each.message) for each in found]


def _note(file: Source, problems: Any, *below: str) -> None:
    for problem in problems:
        where = (*below, *problem.where)
        file.problem(where, f"{place_of(where)}: {problem.message}" if where else problem.message)


def _text_at(file: Source, *where: str) -> str:
    """The text there; empty if there is none, which another check says."""
    value = file.at(where)
    return value if isinstance(value, str) else ""


def _pack_of(ref: str) -> str:
    return ref.partition(".")[0]


def _is_ref(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= 130 and bool(REF.fullmatch(value))


NAME_KEY = Key("at most 60 of a-z, 0-9, _, . and -", lambda value: is_name(value, NAME), True)
SCHEMA = Key("a JSON Schema", lambda value: isinstance(value, dict))
REQUIRED = Key("a mapping", lambda value: isinstance(value, dict), required=True)
ANYTHING = Key("anything", lambda value: True)
"""A value that those who use it check, with its place."""

TYPE_KEYS: Mapping[str, Key] = {
    "name": NAME_KEY, "description": TEXT, "parameters_schema": SCHEMA, "payload_schema": SCHEMA,
}  # fmt: skip

RULE_KEYS: Mapping[str, Key] = {
    "name": NAME_KEY,
    "description": TEXT,
    "enabled": YES_OR_NO,
    "trigger": REQUIRED,
    "criteria": ANYTHING,
    "action": REQUIRED,
    "type": one_of(*RULE_TYPES),
    **dict.fromkeys(OPTION_KEYS, ANYTHING),
}

TRIGGER_KEYS: Mapping[str, Key] = {
    "type": Key("a trigger type, as pack.name", _is_ref, required=True),
    "parameters": MAPPING,
}

ACTION_KEYS: Mapping[str, Key] = {
    "ref": Key("an action, as pack.name", _is_ref, required=True),
    "parameters": MAPPING,
}
