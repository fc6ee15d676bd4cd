"""Policies as YAML files of packs, and as JSON: read and checked without a database."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.core.json_values import is_number, is_whole
from orchestrator.core.packs import Source
from orchestrator.core.packs.keys import TEXT, YES_OR_NO, Key, check, one_of
from orchestrator.policies import periods
from orchestrator.policies.models import Policy
from orchestrator.policies.models.policies import KEYS_MAX, REF, TARGET_MAX
from orchestrator.policies.periods import Period

Kind, Scope = Policy.Kind, Policy.Scope

NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,59}")
NAME_EXPECTED = "at most 60 of a-z, 0-9, _ and -, a letter or digit first"
POINTER = re.compile(r"/([^~\0]|~[01]){1,199}")

OF_KIND: Mapping[str, str] = {"window_seconds": Kind.RATE, "period": Kind.QUOTA}
"""Keys that policies of one kind need, and others cannot have."""


@dataclass(frozen=True)
class NewPolicy:
    """A policy as its author writes it: values of the model's fields."""

    ref: str
    values: Mapping[str, Any]


def check_file(file: Source) -> None:
    """Note all problems with the policy in this file of a pack."""
    if not check(file, {"name": NAME_KEY, **OF_FILES, **COMMON}):
        return
    if "action" in file.value and "rule" in file.value:
        file.problem(("rule",), "rule: expected one of action and rule, found both")
    _check_kind(file)


def check_document(file: Source) -> None:
    """Note all problems with the policy in this document."""
    if not check(file, {"ref": REF_KEY, "scope": SCOPE, "target": TARGET, **COMMON}):
        return
    scope, target = file.value.get("scope"), file.value.get("target", "")
    if scope == Scope.GLOBAL and target:
        file.problem(("target",), f"target: expected none, as the scope is global, found {target}")
    if scope in Scope.values and scope != Scope.GLOBAL and not target:
        file.problem(("target",), f"target: missing key, expected the {scope} that it limits")
    _check_kind(file)


def of_file(values: Mapping[str, Any], *, pack: str) -> NewPolicy:
    """The policy in a checked file of a pack. It limits what is of this pack, and nothing else."""
    given = {key: value for key, value in values.items() if key not in ("name", *OF_FILES)}
    scope, target = Scope.PACK, pack
    for name in OF_FILES:
        if name in values:
            scope, target = Scope(name), f"{pack}.{values[name]}"
    own = {"scope": scope.value, "target": target}
    return NewPolicy(f"{pack}.{values['name']}", {**DEFAULTS, **given, **own})


def of_document(values: Mapping[str, Any]) -> NewPolicy:
    """The policy in a checked document."""
    given = {key: value for key, value in values.items() if key != "ref"}
    return NewPolicy(values["ref"], {**DEFAULTS, **given})


def source_of(values: Any, *, name: str) -> Source:
    """A document that is no file, to be checked as one: its problems have their paths."""
    return Source(Path(name), values)


def _check_kind(file: Source) -> None:
    kind = file.value.get("kind")
    if kind not in Kind.values:
        return
    for name, needed in OF_KIND.items():
        if kind == needed and not file.value.get(name):
            file.problem((), f"{name}: missing key, a {needed} needs {KINDS_NEED[name]}")
        elif kind != needed and file.value.get(name):
            file.problem((name,), f"{name}: expected only with kind {needed}, found it with {kind}")
    if kind != Kind.QUOTA and file.value.get("timezone", "UTC") != "UTC":
        file.problem(
            ("timezone",), f"timezone: expected only with kind quota, found it with {kind}"
        )


def _whole(least: int, most: int) -> Key:
    return Key(
        f"a whole number from {least} to {most:,}",
        lambda value: is_whole(value) and least <= value <= most,
        required=True,
    )


def _are_pointers(value: Any) -> bool:
    if not isinstance(value, list) or len(value) > KEYS_MAX or len(value) != len(_different(value)):
        return False
    return all(map(_is_pointer, value))


def _is_pointer(value: Any) -> bool:
    return isinstance(value, str) and POINTER.fullmatch(value) is not None


def _no_pointer(value: Any) -> Any:
    """The first of a list that is no pointer, or all of it."""
    each = value if isinstance(value, list) else []
    return next((one for one in each if not _is_pointer(one)), value)


def _different(values: Sequence[Any]) -> set[str]:
    return {str(value) for value in values}


KINDS_NEED = {"window_seconds": "a number of seconds", "period": "hour, day or month"}

NAME_KEY = Key(
    f"a name, {NAME_EXPECTED}",
    lambda value: isinstance(value, str) and bool(NAME.fullmatch(value)),
    required=True,
)
REF_KEY = Key(
    f"a name, {NAME_EXPECTED}",
    lambda value: isinstance(value, str) and bool(re.fullmatch(REF, value)),
    required=True,
)
SCOPE = one_of(*Scope.values, required=True)
TARGET = Key(
    f"text of at most {TARGET_MAX} characters",
    lambda value: isinstance(value, str) and "\0" not in value and len(value) <= TARGET_MAX,
)
OF_PACK = Key(
    "a name in this pack, without the pack's",
    lambda value: isinstance(value, str) and bool(re.fullmatch(r"[a-z0-9_.-]{1,80}", value)),
)
OF_FILES: Mapping[str, Key] = {"action": OF_PACK, "rule": OF_PACK}

COMMON: Mapping[str, Key] = {
    "description": TEXT,
    "kind": one_of(*Kind.values, required=True),
    "limit": _whole(1, 1_000_000),
    "window_seconds": Key(
        "a number from 1 to 86,400", lambda value: is_number(value) and 1 <= value <= 86_400
    ),
    "period": one_of(*(each.value for each in Period)),
    "timezone": Key(
        "the name of a time zone, such as Europe/Berlin",
        lambda value: isinstance(value, str) and len(value) <= 64 and periods.is_zone(value),
    ),
    "keyed_by": Key(
        f"a list of at most {KEYS_MAX} different JSON pointers to parameters, such as /host",
        _are_pointers,
        fault_in=_no_pointer,
    ),
    "on_exceed": one_of(*Policy.OnExceed.values),
    "enabled": YES_OR_NO,
}

DEFAULTS: Mapping[str, Any] = {
    "description": "",
    "target": "",
    "window_seconds": None,
    "period": "",
    "timezone": "UTC",
    "keyed_by": [],
    "on_exceed": Policy.OnExceed.WAIT.value,
    "enabled": True,
}
