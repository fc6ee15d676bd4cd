"""What an action may say to its runtime: the keys of `options` and of `limits`.

What a runtime does with them is in `workers.runtimes`, which a pack can be checked without. A
runtime that somebody added (an entry point of the group `muster.runtimes`) takes any.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from orchestrator.core.packs import entry_points
from orchestrator.core.packs.keys import (
    NUMBER,
    TEXT,
    WHOLE_NUMBER,
    YES_OR_NO,
    Key,
    check,
    is_text,
    one_of,
)
from orchestrator.core.packs.source import Source

GROUP = "muster.runtimes"
REQUIREMENTS = "requirements.txt"
"""A pack that has this file has a Python environment of its own."""

VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
IMAGE = re.compile(r"[A-Za-z0-9][\w./:@-]*")
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
MOST_REDIRECTS = 20


@dataclass(frozen=True)
class Kind:
    """A built-in runtime: the keys that it knows."""

    options: Mapping[str, Key] = field(default_factory=dict)
    limits: Mapping[str, Key] = field(default_factory=dict)


def _is_environment(value: Any) -> bool:
    return isinstance(value, dict) and all(
        VARIABLE.fullmatch(name) and not name.startswith("MSTR_") and is_text(text)
        for name, text in value.items()
    )


def _is_headers(value: Any) -> bool:
    return isinstance(value, dict) and all(
        HEADER.fullmatch(name) and is_text(text) and text.isprintable()
        for name, text in value.items()
    )


def _is_query(value: Any) -> bool:
    return isinstance(value, dict) and all(
        isinstance(item, str | int | float) for item in value.values()
    )


def _is_redirects(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_REDIRECTS


ENVIRONMENT = Key("variables (not MSTR_...) with a text for each", _is_environment)
COMMAND_OPTIONS: Mapping[str, Key] = {
    "result": one_of("none", "last_line", "file"),
    "env": ENVIRONMENT,
    "detached": one_of("fail", "kill"),
}
COMMAND_LIMITS: Mapping[str, Key] = {
    "processes": WHOLE_NUMBER,
    "memory_mb": WHOLE_NUMBER,
    "address_space_mb": WHOLE_NUMBER,
    "cpu_seconds": WHOLE_NUMBER,
    "file_size_mb": WHOLE_NUMBER,
    "open_files": WHOLE_NUMBER,
    "output_mb": NUMBER,
}

KINDS: Mapping[str, Kind] = {
    "python": Kind(
        {
            "process": YES_OR_NO,
            "interpreter": TEXT,
            "env": ENVIRONMENT,
            "detached": COMMAND_OPTIONS["detached"],
        },
        COMMAND_LIMITS,
    ),
    "shell": Kind(COMMAND_OPTIONS, COMMAND_LIMITS),
    "node": Kind(COMMAND_OPTIONS, COMMAND_LIMITS),
    "http": Kind(
        {
            "method": one_of(*METHODS),
            "headers": Key("names with a text of one line for each", _is_headers),
            "query": Key("names with a text or a number for each", _is_query),
            "body": Key("text, or what JSON can hold", lambda value: value is not None),
            "redirects": Key(f"a whole number from 0 to {MOST_REDIRECTS}", _is_redirects),
        },
        {"output_mb": NUMBER},
    ),
    "container": Kind(
        {
            "image": Key(
                "the name of an image",
                lambda value: isinstance(value, str) and bool(IMAGE.fullmatch(value)),
                required=True,
            ),
            "network": Key(
                "the name of a network, `none` for no network",
                lambda value: isinstance(value, str) and bool(IMAGE.fullmatch(value)),
            ),
            "pull": one_of("missing", "always", "never"),
            "result": COMMAND_OPTIONS["result"],
            "env": ENVIRONMENT,
        },
        {
            "processes": WHOLE_NUMBER,
            "memory_mb": WHOLE_NUMBER,
            "cpus": NUMBER,
            "file_size_mb": WHOLE_NUMBER,
            "open_files": WHOLE_NUMBER,
            "output_mb": NUMBER,
        },
    ),
}


def names() -> list[str]:
    """Every runtime that an action may name here: the built-in ones, then those added."""
    added = {point.name for point in metadata.entry_points(group=GROUP)}
    return [*KINDS, *sorted(added - KINDS.keys())]


def in_process(runtime: str, options: Mapping[str, Any]) -> bool:
    """Whether an action of a built-in runtime runs in the worker's own process, where no limit but
    time holds."""
    return runtime == "http" or (runtime == "python" and not options.get("process"))


def options_of(values: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """An action's options with what follows from them, and from its pack, made plain."""
    options = dict(values.get("options", {}))
    if values["runtime"] == "python" and "process" not in options:
        own = "interpreter" in options or (folder / REQUIREMENTS).is_file()
        options |= {"process": True} if own else {}
    return options


def note_problems(file: Source, folder: Path) -> None:
    """Note all that is wrong with an action's entry point, options and limits."""
    runtime = file.value.get("runtime")
    kind = KINDS.get(runtime) if isinstance(runtime, str) else None
    if kind is None:
        return
    _note_options(file, kind, folder)
    if "entry_point" in file.value:
        schema = file.value.get("parameters", {})
        findings = entry_points.problems(
            runtime, file.value["entry_point"], folder=folder, schema=schema
        )
        for where, message in findings:
            file.problem(("entry_point", *where), f"entry_point: {message}")
    if runtime == "http" and isinstance(file.value.get("options"), dict):
        for path, message in _template_problems(file.value):
            file.problem(("options", *path), f"{'.'.join(('options', *map(str, path)))}: {message}")


def _note_options(file: Source, kind: Kind, folder: Path) -> None:
    values = file.value
    options = values.get("options", {})
    if isinstance(options, dict) or options is None:
        check(file, kind.options, ("options",))
    if isinstance(values.get("limits"), dict):
        check(file, kind.limits, ("limits",))
    if not isinstance(options, dict) or values["runtime"] != "python":
        return
    if options.get("process") is False and "interpreter" in options:
        file.problem(
            ("options", "process"),
            "options.process: expected true, as options.interpreter needs it, found False",
        )
    if not options_of(values, folder).get("process"):
        for name in ("limits", "env", "detached"):
            where = (name,) if name == "limits" else ("options", name)
            if name in (values if name == "limits" else options):
                file.problem(
                    where,
                    f"{'.'.join(where)}: needs `options: {{process: true}}`: an action in the "
                    "worker's own process cannot have it",
                    at_key=True,
                )


def _template_problems(values: Mapping[str, Any]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    for name in ("headers", "query", "body"):
        if name in values["options"]:
            yield from _texts(values["options"][name], (name,), values.get("parameters", {}))


def _texts(
    value: Any, where: tuple[str | int, ...], schema: Any
) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Problems of every text in a template, however deep."""
    if isinstance(value, str):
        for message in entry_points.template_problems(value, schema=schema):
            yield where, message
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _texts(item, (*where, key), schema)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _texts(item, (*where, index), schema)
