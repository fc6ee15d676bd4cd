"""The settings of an action for its runtime: the keys of `options` and of `limits`.

Their effect is implemented in `workers.runtimes`, which is not needed to check a pack. An added
runtime (an entry point of the group `muster.runtimes`) accepts any keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from django.conf import settings

from orchestrator.core import frame, isolation
from orchestrator.core.json_values import is_whole
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
"""A pack with this file gets a Python environment of its own."""

VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
IMAGE = re.compile(r"[A-Za-z0-9][\w./:@-]*")
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
MOST_REDIRECTS = 20
NO_NETWORK = "none"
COMMAND_ISOLATION = (isolation.PROCESS, isolation.USER)


TOKEN = "token"  # noqa: S105 - the name of an option
"""The option by which an action gets a token of its execution, in `MSTR_TOKEN`. It needs a process
of its own."""


@dataclass(frozen=True)
class Kind:
    """A built-in runtime: the keys that it knows, and the isolation that it can give."""

    options: Mapping[str, Key] = field(default_factory=dict)
    limits: Mapping[str, Key] = field(default_factory=dict)
    isolation: tuple[str, ...] = COMMAND_ISOLATION
    """The first is the default."""


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
    return is_whole(value) and 0 <= value <= MOST_REDIRECTS


ENVIRONMENT = Key("variables (not MSTR_...) with a text for each", _is_environment)
COMMAND_OPTIONS: Mapping[str, Key] = {
    "result": one_of("none", "last_line", "file"),
    "env": ENVIRONMENT,
    "detached": one_of("fail", "kill"),
    "exit_75": one_of("defer", "fail"),
    TOKEN: YES_OR_NO,
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

IN_POOL_OR_PROCESS = (isolation.PROCESS, isolation.USER, isolation.TRUSTED)

KINDS: Mapping[str, Kind] = {
    "python": Kind(
        {
            "process": YES_OR_NO,
            "interpreter": TEXT,
            "env": ENVIRONMENT,
            "detached": COMMAND_OPTIONS["detached"],
            TOKEN: YES_OR_NO,
        },
        COMMAND_LIMITS,
        IN_POOL_OR_PROCESS,
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
            "status_503": one_of("defer", "fail"),
        },
        {"output_mb": NUMBER},
        IN_POOL_OR_PROCESS,
    ),
    "container": Kind(
        {
            "image": Key(
                "the name of an image",
                lambda value: isinstance(value, str) and bool(IMAGE.fullmatch(value)),
                required=True,
            ),
            "network": Key(
                "`none`, or a network of MUSTER_CONTAINER_NETWORKS", lambda value: may_join(value)
            ),
            "pull": one_of("missing", "always", "never"),
            "result": COMMAND_OPTIONS["result"],
            "exit_75": COMMAND_OPTIONS["exit_75"],
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
        (isolation.CONTAINER,),
    ),
}


def names() -> list[str]:
    """Every runtime that an action may name on this host: the built-in ones, then the added
    ones."""
    added = {point.name for point in metadata.entry_points(group=GROUP)}
    return [*KINDS, *frame.held_runtimes(), *sorted(added - KINDS.keys())]


def in_process(runtime: str, options: Mapping[str, Any]) -> bool:
    """Return True if an action of a built-in runtime gets no process of its own for each execution:
    it runs in a warm process, or in the worker's own if it is trusted."""
    return runtime == "http" or (runtime == "python" and not options.get("process"))


def defers_on_75(runtime: str, options: Mapping[str, Any], *, idempotent: bool) -> bool:
    """Return True if the exit status 75 (EX_TEMPFAIL) of such a command says that it cannot begin
    now.

    Programs use it also for work that they have done in part: sendmail does for a message that it
    has queued. So only an idempotent action means it without saying so.
    """
    kind = KINDS.get(runtime)
    if kind is None or "exit_75" not in kind.options:
        return False
    return bool(options.get("exit_75", "defer" if idempotent else "fail") == "defer")


def may_join(network: Any) -> bool:
    """Return True if the installation lets container actions join this network."""
    networks = settings.MUSTER.container_networks.split(",")
    return network == NO_NETWORK or (bool(network) and network in map(str.strip, networks))


def isolation_of(values: Mapping[str, Any]) -> str:
    """The isolation that an action states, or the default of its runtime."""
    kind = KINDS.get(values["runtime"])
    default = kind.isolation[0] if kind else isolation.PROCESS
    return str(values.get("isolation", default))


def options_of(values: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """An action's options, completed by what follows from them and from its pack."""
    options = dict(values.get("options", {}))
    if values["runtime"] == "python" and "process" not in options:
        own = "interpreter" in options or (folder / REQUIREMENTS).is_file()
        options |= {"process": True} if own else {}
    return options


def note_problems(file: Source, folder: Path) -> None:
    """Note all problems with an action's entry point, options and limits."""
    runtime = file.value.get("runtime")
    kind = KINDS.get(runtime) if isinstance(runtime, str) else None
    if kind is None:
        return
    _note_options(file, kind, folder)
    _note_isolation(file, kind, folder)
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
    if options_of(values, folder).get("process"):
        return
    if "limits" in values:
        file.problem(
            ("limits",),
            "limits: needs `options: {process: true}`: the actions of a pack share processes, "
            "which have the installation's limits",
            at_key=True,
        )
    if options.get(TOKEN):
        file.problem(
            ("options", TOKEN),
            "options.token: needs `options: {process: true}`: a process that is shared by actions "
            "has no token",
            at_key=True,
        )
    for name in {"env", "detached"} & options.keys():
        if values.get("isolation") == isolation.TRUSTED:
            file.problem(
                ("options", name),
                f"options.{name}: an action in the worker's own process cannot have it",
                at_key=True,
            )


def _note_isolation(file: Source, kind: Kind, folder: Path) -> None:
    stated = file.value.get("isolation")
    if stated not in isolation.LEVELS:
        return
    possible, why = kind.isolation, f"the runtime {file.value['runtime']}"
    options = file.value.get("options", {})
    if isinstance(options, dict) and options_of(file.value, folder).get("process"):
        possible, why = COMMAND_ISOLATION, "a process for each execution"
    if stated not in possible:
        message = f"isolation: expected {' or '.join(possible)}, as {why} gives, found {stated!r}"
        file.problem(("isolation",), message)


def _template_problems(values: Mapping[str, Any]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    for name in ("headers", "query", "body"):
        if name in values["options"]:
            yield from _texts(values["options"][name], (name,), values.get("parameters", {}))


def _texts(
    value: Any, where: tuple[str | int, ...], schema: Any
) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Find the problems of every text in a template, at any depth."""
    if isinstance(value, str):
        for message in entry_points.template_problems(value, schema=schema):
            yield where, message
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _texts(item, (*where, key), schema)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _texts(item, (*where, index), schema)
