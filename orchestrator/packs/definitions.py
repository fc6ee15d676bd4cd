"""What a pack's folder says, checked. Every problem is reported, not only the first."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orchestrator import retry_policy
from orchestrator.errors import MusterError
from orchestrator.packs import entry_points, parameters, source
from orchestrator.packs.source import Source, SourceProblem

PACK_NAME = re.compile(r"[a-z0-9_-]+")
ACTION_NAME = re.compile(r"[a-z0-9_.-]+")
LARGEST_INTEGER = 2_147_483_647
"""What an integer column holds."""


class InvalidPack(MusterError):
    """The pack has problems, and nothing of it was installed."""

    def __init__(self, problems: Iterable[SourceProblem]) -> None:
        self.problems = sorted(set(problems), key=lambda p: (p.file, p.line, p.column, p.message))
        super().__init__("\n".join(map(str, self.problems)))


@dataclass(frozen=True)
class ActionDefinition:
    """An action as its file has it; the names are those of the model."""

    ref: str
    runtime: str
    entry_point: str | list[str]
    description: str = ""
    parameters_schema: dict[str, Any] = field(default_factory=dict)
    timeout_seconds: float | None = None
    queue_ttl_ms: int | None = None
    retry_policy: dict[str, Any] = field(default_factory=dict)
    idempotent: bool = False
    on_no_worker: str = "fail"
    enabled: bool = True


@dataclass(frozen=True)
class PackDefinition:
    """A pack as its folder has it."""

    name: str
    version: str
    description: str
    path: str
    actions: tuple[ActionDefinition, ...]


@dataclass(frozen=True)
class Key:
    """What may stand under a key."""

    expected: str
    fits: Callable[[Any], bool]
    required: bool = False


def load(path: Path | str) -> PackDefinition:
    """Read the folder `path`: `pack.yaml` and `actions/*.yaml`. Raises InvalidPack."""
    folder = Path(path)
    if not folder.is_dir():
        raise InvalidPack([SourceProblem(str(folder), 0, 0, "expected a folder, found none")])
    pack = source.read(folder / "pack.yaml")
    _check(pack, PACK_KEYS)
    actions = [source.read(file) for file in sorted(folder.glob("actions/*.yaml"))]
    for action in actions:
        _check_action(action, folder)
    problems = [*pack.problems, *_misnamed(folder)]
    problems += [problem for action in actions for problem in action.problems]
    problems += _duplicates(actions)
    if problems:
        raise InvalidPack(problems)
    definition = _pack(pack.value, folder, actions)
    if too_long := _too_long(definition, actions):
        raise InvalidPack(too_long)
    return definition


def _pack(values: Mapping[str, Any], folder: Path, actions: list[Source]) -> PackDefinition:
    return PackDefinition(
        name=values["name"],
        version=values["version"],
        description=values.get("description", ""),
        path=str(folder.resolve()),
        actions=tuple(_action(values["name"], action.value) for action in actions),
    )


def _action(pack_name: str, values: Mapping[str, Any]) -> ActionDefinition:
    renamed = {"parameters": "parameters_schema", "retry": "retry_policy"}
    return ActionDefinition(
        ref=f"{pack_name}.{values['name']}",
        **{renamed.get(key, key): value for key, value in values.items() if key != "name"},
    )


def _check(file: Source, keys: Mapping[str, Key]) -> bool:
    """Note unknown, missing and unfit keys; False if there is no mapping to speak of."""
    if not isinstance(file.value, dict):
        if not file.problems:
            file.problem((), f"expected a mapping, found {_shown(file.value)}")
        return False
    for name in file.value:
        if name not in keys:
            near = difflib.get_close_matches(name, keys, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"expected one of {', '.join(keys)}"
            file.problem((name,), f"{name}: unknown key, {hint}", at_key=True)
    for name, key in keys.items():
        if name not in file.value:
            if key.required:
                file.problem((), f"{name}: missing key, expected {key.expected}")
        elif not key.fits(file.value[name]):
            found = _shown(file.value[name])
            file.problem((name,), f"{name}: expected {key.expected}, found {found}")
    return True


def _check_action(file: Source, folder: Path) -> None:
    if not _check(file, ACTION_KEYS):
        return
    values = file.value
    schema = values.get("parameters", {})
    if isinstance(schema, dict):
        for problem in parameters.schema_problems(schema):
            where = ("parameters", *problem.where)
            file.problem(where, f"{'.'.join(map(str, where))}: {problem.message}")
    if isinstance(values.get("retry"), dict):
        for name, message in retry_policy.problems(values["retry"]):
            file.problem(("retry", name), f"retry.{name}: {message}")
    if "entry_point" not in values:
        return
    findings: Iterable[entry_points.Finding] = ()
    if values.get("runtime") == "python":
        findings = entry_points.python_problems(values["entry_point"], folder=folder)
    elif values.get("runtime") == "shell":
        findings = entry_points.shell_problems(values["entry_point"], schema=schema)
    for where, message in findings:
        file.problem(("entry_point", *where), f"entry_point: {message}")


def _duplicates(actions: Iterable[Source]) -> Iterable[SourceProblem]:
    first: dict[str, Source] = {}
    for action in actions:
        name = action.value.get("name") if isinstance(action.value, dict) else None
        if not isinstance(name, str):
            continue
        if name in first:
            other = first[name]
            place = f"{other.file.name}:{other.line(('name',))}"
            line = action.line(("name",))
            message = f"name: expected a name of its own, found {name!r}, as in {place}"
            yield SourceProblem(str(action.file), line, 1, message)
        first.setdefault(name, action)


def _misnamed(folder: Path) -> Iterable[SourceProblem]:
    """Files that would be overlooked without a word."""
    for file in (*folder.glob("*.yml"), *folder.glob("actions/*.yml")):
        yield SourceProblem(str(file), 0, 0, "expected a name that ends in .yaml, found .yml")


def _too_long(definition: PackDefinition, actions: list[Source]) -> list[SourceProblem]:
    pairs = zip(definition.actions, actions, strict=True)
    return [
        SourceProblem(
            str(file.file),
            file.line(("name",)),
            1,
            f"name: expected at most 130 characters together with the pack's, found {len(a.ref)}",
        )
        for a, file in pairs
        if len(a.ref) > 130
    ]


def _shown(value: Any) -> str:
    shown = "nothing" if value is None else repr(value)
    return shown if len(shown) <= 80 else f"{shown[:80]}…"


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and "\0" not in value


def _is_name(value: Any, pattern: re.Pattern[str]) -> bool:
    return isinstance(value, str) and len(value) <= 60 and bool(pattern.fullmatch(value))


def _is_above_zero(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


def _is_milliseconds(value: Any) -> bool:
    return isinstance(value, int) and _is_above_zero(value) and value <= LARGEST_INTEGER


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool)


def _one_of(*choices: str, required: bool = False) -> Key:
    return Key(
        f"one of {', '.join(choices)}",
        lambda value: isinstance(value, str) and value in choices,
        required,
    )


TEXT = Key("text", _is_text)
YES_OR_NO = Key("true or false", _is_bool)
MAPPING = Key("a mapping", lambda value: isinstance(value, dict))

PACK_KEYS: Mapping[str, Key] = {
    "name": Key(
        "at most 60 of a-z, 0-9, _ and -", lambda value: _is_name(value, PACK_NAME), required=True
    ),
    "version": Key(
        'text of at most 40 characters, such as "1.0" with its quotes',
        lambda value: _is_text(value) and 0 < len(value) <= 40,
        required=True,
    ),
    "description": TEXT,
}

ACTION_KEYS: Mapping[str, Key] = {
    "name": Key(
        "at most 60 of a-z, 0-9, _, . and -", lambda value: _is_name(value, ACTION_NAME), True
    ),
    "description": TEXT,
    "runtime": _one_of("python", "shell", required=True),
    "entry_point": Key(
        "package.module:function or a list of arguments", lambda value: True, required=True
    ),
    "parameters": Key("a JSON Schema", lambda value: isinstance(value, dict)),
    "timeout_seconds": Key("a number above 0", _is_above_zero),
    "queue_ttl_ms": Key("a whole number above 0", _is_milliseconds),
    "retry": MAPPING,
    "idempotent": YES_OR_NO,
    "on_no_worker": _one_of("fail", "wait"),
    "enabled": YES_OR_NO,
}
