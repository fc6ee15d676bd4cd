"""Definitions read from a pack's folder and checked. Every problem is reported, not only the
first."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orchestrator.core import frame, isolation, retry_policy, selectors
from orchestrator.core.errors import MusterError
from orchestrator.core.frame import PackContent
from orchestrator.core.models.catalog import waits_too_long
from orchestrator.core.packs import imported, parameters, runtimes, source
from orchestrator.core.packs.keys import (
    MAPPING,
    NUMBER,
    QUEUE,
    TEXT,
    TIMEOUT,
    WHOLE_NUMBER,
    YES_OR_NO,
    Key,
    check,
    is_name,
    is_text,
    one_of,
)
from orchestrator.core.packs.source import Source, SourceProblem

PACK_NAME = re.compile(r"[a-z0-9_-]+")
ACTION_NAME = re.compile(r"[a-z0-9_.-]+")


class InvalidPack(MusterError):
    """The pack has problems, and nothing of it was installed."""

    def __init__(self, problems: Iterable[SourceProblem]) -> None:
        self.problems = sorted(set(problems), key=lambda p: (p.file, p.line, p.column, p.message))
        super().__init__("\n".join(map(str, self.problems)))


@dataclass(frozen=True)
class ActionDefinition:
    """An action as its file defines it; the field names are those of the model."""

    ref: str
    runtime: str
    entry_point: str | list[str]
    runtime_options: dict[str, Any] = field(default_factory=dict)
    limits: dict[str, Any] = field(default_factory=dict)
    isolation: str = isolation.PROCESS
    description: str = ""
    parameters_schema: dict[str, Any] = field(default_factory=dict)
    timeout_seconds: float | None = None
    queue_ttl_ms: int | None = None
    scheduled_timeout_seconds: float | None = None
    worker_selector: dict[str, str] = field(default_factory=dict)
    retry_policy: dict[str, Any] = field(default_factory=dict)
    queue: str = ""
    idempotent: bool = False
    on_no_worker: str = "fail"
    dangerous: bool = False
    enabled: bool = True


@dataclass(frozen=True)
class PackFiles:
    """The files of a pack while they are checked."""

    name: str
    actions: Mapping[str, Source]
    """By ref."""
    contents: Mapping[str, list[Source]]
    """Of every kind, by folder."""


@dataclass(frozen=True)
class PackDefinition:
    """A pack as its folder defines it."""

    name: str
    version: str
    description: str
    path: str
    actions: tuple[ActionDefinition, ...]
    contents: Mapping[str, tuple[dict[str, Any], ...]] = field(default_factory=dict)
    """Content for apps, checked by them, by folder."""
    notes: tuple[SourceProblem, ...] = ()
    """Notes that whoever installs it should know, though nothing is wrong."""
    files: Mapping[str, tuple[Source, ...]] = field(default_factory=dict, repr=False, compare=False)
    """The files of `contents`, for the places of problems that the installation finds."""


def load(path: Path | str) -> PackDefinition:
    """Read the folder: `pack.yaml`, `actions/*.yaml`, actions in Python, apps' own files. Raises
    InvalidPack."""
    folder = Path(path)
    if not folder.is_dir():
        raise InvalidPack([SourceProblem(str(folder), 0, 0, "expected a folder, found none")])
    pack = source.read(folder / "pack.yaml", folder=folder)
    check(pack, PACK_KEYS)
    in_python = imported.read(folder, pack)
    actions = [*_read_all(folder, "actions"), *in_python.actions]
    for action in actions:
        _check_action(action, folder)
    problems = [*pack.problems, *in_python.problems, *_misnamed(folder)]
    problems += [problem for action in actions for problem in action.problems]
    problems += _duplicates(actions, ("name",))
    contents: dict[str, list[Source]] = {}
    for kind in kinds():
        files = _read_all(folder, kind.folder)
        for file in files:
            kind.check(file)
        problems += _duplicates(files, kind.name_keys)
        contents[kind.folder] = files
    _check_as_parts(pack, actions, contents)
    problems += [each for files in contents.values() for file in files for each in file.problems]
    if problems:
        raise InvalidPack(problems)
    definition = _pack(pack.value, folder, actions, contents, tuple(in_python.notes))
    if too_long := _too_long(definition, actions):
        raise InvalidPack(too_long)
    return definition


def _read_all(folder: Path, name: str) -> list[Source]:
    return [source.read(file, folder=folder) for file in sorted(folder.glob(f"{name}/*.yaml"))]


def kinds() -> list[PackContent]:
    """The kinds of content that packs may hold besides actions."""
    return frame.collect(lambda app: app.pack_contents)


def _pack(
    values: Mapping[str, Any],
    folder: Path,
    actions: list[Source],
    contents: Mapping[str, list[Source]],
    notes: tuple[SourceProblem, ...],
) -> PackDefinition:
    return PackDefinition(
        name=values["name"],
        version=values["version"],
        description=values.get("description", ""),
        path=str(folder.resolve()),
        actions=tuple(_action(values["name"], action.value, folder) for action in actions),
        contents={
            name: tuple(file.value for file in files) for name, files in contents.items() if files
        },
        notes=notes,
        files={name: tuple(files) for name, files in contents.items()},
    )


def _action(pack_name: str, values: Mapping[str, Any], folder: Path) -> ActionDefinition:
    renamed = {"parameters": "parameters_schema", "retry": "retry_policy"}
    own = {"name", "options", "isolation"}
    return ActionDefinition(
        ref=f"{pack_name}.{values['name']}",
        runtime_options=runtimes.options_of(values, folder),
        isolation=runtimes.isolation_of(values),
        **{renamed.get(key, key): value for key, value in values.items() if key not in own},
    )


def _check_action(file: Source, folder: Path) -> None:
    if not check(file, ACTION_KEYS | {"runtime": one_of(*runtimes.names(), required=True)}):
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
    for name, message in selectors.problems(values.get("worker_selector", {})):
        where = ("worker_selector", name) if name else ("worker_selector",)
        file.problem(where, f"{'.'.join(where)}: {message}")
    waits = (values.get("queue_ttl_ms"), values.get("scheduled_timeout_seconds"))
    for name, message in waits_too_long(*waits):
        file.problem((name,), f"{name}: {message}")
    runtimes.note_problems(file, folder)


def _duplicates(files: Iterable[Source], keys: tuple[str, ...]) -> Iterable[SourceProblem]:
    """Problems with files that have the same name as an earlier one; these keys make up the
    name."""
    first: dict[str, Source] = {}
    for file in files:
        names = [file.at((key,)) for key in keys]
        if not all(isinstance(name, str) for name in names):
            continue
        name = "/".join(names)
        if name in first:
            other = first[name]
            place = f"{other.file.name}:{other.line(('name',))}"
            line = file.line(("name",))
            message = f"name: expected a name of its own, found {name!r}, as in {place}"
            yield SourceProblem(str(file.file), line, 1, message)
        first.setdefault(name, file)


def _check_as_parts(
    pack: Source, actions: Iterable[Source], contents: Mapping[str, list[Source]]
) -> None:
    """Have apps note what is wrong with their files as parts of the pack."""
    name = pack.at(("name",))
    refs = {f"{name}.{action.at(('name',))}": action for action in actions}
    for kind in kinds():
        if kind.check_pack is not None and is_name(name, PACK_NAME):
            kind.check_pack(PackFiles(name, refs, contents))


def _misnamed(folder: Path) -> Iterable[SourceProblem]:
    """Problems with files that would be silently ignored."""
    places = ["", "actions/", *(f"{kind.folder}/" for kind in kinds())]
    for file in (file for place in places for file in folder.glob(f"{place}*.yml")):
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


PACK_KEYS: Mapping[str, Key] = {
    "name": Key(
        "at most 60 of a-z, 0-9, _ and -", lambda value: is_name(value, PACK_NAME), required=True
    ),
    "version": Key(
        'text of at most 40 characters, such as "1.0" with its quotes',
        lambda value: is_text(value) and 0 < len(value) <= 40,
        required=True,
    ),
    "description": TEXT,
    "celery_tasks": Key(
        "a list of modules in packages, such as shop.tasks", imported.is_list_of_modules
    ),
}

ACTION_KEYS: dict[str, Key] = {
    "name": Key(
        "at most 60 of a-z, 0-9, _, . and -", lambda value: is_name(value, ACTION_NAME), True
    ),
    "description": TEXT,
    "runtime": TEXT,  # one of those that are known where the file is read
    "entry_point": Key(
        "package.module:function, a list of arguments or a URL", lambda value: True, required=True
    ),
    "options": MAPPING,
    "limits": MAPPING,
    "isolation": one_of(*isolation.LEVELS),
    "parameters": Key("a JSON Schema", lambda value: isinstance(value, dict)),
    "timeout_seconds": TIMEOUT,
    "queue_ttl_ms": WHOLE_NUMBER,
    "scheduled_timeout_seconds": NUMBER,
    "worker_selector": Key("a mapping of labels", lambda value: True),
    "retry": MAPPING,
    "queue": QUEUE,
    "idempotent": YES_OR_NO,
    "on_no_worker": one_of("fail", "wait"),
    "dangerous": YES_OR_NO,
    "enabled": YES_OR_NO,
}
