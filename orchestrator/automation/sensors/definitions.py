"""Sensors as files of packs: read, and checked without a database."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from orchestrator.automation.sensors.catalogue import NewSensor
from orchestrator.automation.trigger_types import BUILT_IN
from orchestrator.core import key_references
from orchestrator.core.packs import PackFiles, Source, entry_points
from orchestrator.core.packs.keys import (
    MAPPING,
    NUMBER,
    TEXT,
    YES_OR_NO,
    Key,
    check,
    is_name,
    one_of,
)
from orchestrator.core.packs.runtimes import COMMAND_LIMITS, ENVIRONMENT

NAME = re.compile(r"[a-z0-9_.-]+")
RUNTIMES = ("python", "node", "shell")
OPTIONS = ("env", "interpreter", "parameters", "limits", "alive_seconds")
MOST_TYPES, MOST_KEYS = 100, 50


def _is_types(value: Any) -> bool:
    return _is_texts(value, MOST_TYPES) and bool(value) and all(map(NAME.fullmatch, value))


def _is_keys(value: Any) -> bool:
    return _is_texts(value, MOST_KEYS) and all(map(key_references.REFERENCE.fullmatch, value))


def _is_labels(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(text, str) for text in value.values())


def _is_texts(value: Any, most: int) -> bool:
    return (
        isinstance(value, list)
        and len(value) <= most
        and all(isinstance(item, str) for item in value)
    )


KEYS: Mapping[str, Key] = {
    "name": Key("at most 60 of a-z, 0-9, _, . and -", lambda value: is_name(value, NAME), True),
    "description": TEXT,
    "enabled": YES_OR_NO,
    "runtime": one_of(*RUNTIMES, required=True),
    "entry_point": Key(
        "python: package.module:Class; others: a list of arguments",
        lambda value: isinstance(value, str) or (_is_texts(value, 100) and bool(value)),
        required=True,
    ),
    "trigger_types": Key("a list of trigger types, as names", _is_types, required=True),
    "keys": Key(f"a list of keys: {key_references.EXPECTED}", _is_keys),
    "labels": Key("labels with a text for each", _is_labels),
    "parameters": MAPPING,
    "env": ENVIRONMENT,
    "interpreter": TEXT,
    "limits": MAPPING,
    "alive_seconds": NUMBER,
}


def new_sensor(values: Mapping[str, Any], *, pack: str) -> NewSensor:
    """The sensor in a checked file of a pack."""
    return NewSensor(
        ref=f"{pack}.{values['name']}",
        description=values.get("description", ""),
        runtime=values["runtime"],
        entry_point=values["entry_point"],
        options={name: values[name] for name in OPTIONS if name in values},
        trigger_types=[_type_ref(each, pack) for each in values["trigger_types"]],
        keys=values.get("keys", ()),
        labels=values.get("labels", {}),
        enabled=values.get("enabled", True),
    )


def check_sensor(file: Source) -> None:
    """Note all problems with the sensor in this file."""
    if not check(file, KEYS):
        return
    if isinstance(file.value.get("limits"), dict):
        check(file, COMMAND_LIMITS, ("limits",))
    for each in file.value.get("trigger_types") or ():
        if each in BUILT_IN:
            message = f"trigger_types: only Muster itself reports events of the type {each}"
            file.problem(("trigger_types",), message)
    folder = file.file.parent.parent
    runtime, entry_point = file.value.get("runtime"), file.value.get("entry_point")
    if runtime in RUNTIMES and entry_point:
        found = entry_points.problems(runtime, entry_point, folder=folder, schema={}, kind="class")
        for where, message in found:
            file.problem(("entry_point", *where), f"entry_point: {message}")


def check_sensors_of_pack(files: PackFiles) -> None:
    """Note trigger types of their own pack that do not exist."""
    known = {f"{files.name}.{each.at(('name',))}" for each in files.contents["triggers"]}
    for file in files.contents["sensors"]:
        types = file.at(("trigger_types",))
        for each in types if _is_types(types) else ():
            ref = _type_ref(each, files.name)
            if ref.partition(".")[0] == files.name and ref not in known:
                expected = ", ".join(sorted(known)) or "none: a file in triggers/ describes one"
                file.problem(
                    ("trigger_types",),
                    f"trigger_types: no trigger type is called {ref!r}; the pack has {expected}",
                )


def _type_ref(name: str, pack: str) -> str:
    """A name without a pack is one of its own."""
    return name if "." in name else f"{pack}.{name}"
