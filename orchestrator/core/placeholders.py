"""Templates of commands and requests: `{name}` stands for a parameter, `{{name}}` for itself.

A value becomes (part of) one argument and never passes through a shell, so no character in it is
special. Only an item that is a single placeholder may be a list; each element becomes an argument.
Every other brace is literal: `awk '{print $1}'` needs no escape.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from orchestrator.core.errors import MusterError

PLACEHOLDER = re.compile(r"\{\{(?P<literal>[A-Za-z_]\w*)\}\}|\{(?P<name>[A-Za-z_]\w*)\}")


class CannotExpand(MusterError):
    """The parameters do not fit the arguments of the action."""


def names(item: str) -> list[str]:
    """The parameters that an argument refers to."""
    return [match["name"] for match in PLACEHOLDER.finditer(item) if match["name"]]


def whole(item: str) -> str | None:
    """The parameter of this argument, if it is a single placeholder."""
    match = PLACEHOLDER.fullmatch(item)
    return match["name"] if match else None


def expand(items: Sequence[str], parameters: Mapping[str, Any]) -> list[str]:
    """Fill every placeholder of the arguments. Raises CannotExpand."""
    argv: list[str] = []
    for item in items:
        name = whole(item)
        value = parameters.get(name) if name else None
        if isinstance(value, list):
            if None in value:
                raise CannotExpand(f"Parameter {name!r} has null at index {value.index(None)}.")
            argv += [_text(name or "", element) for element in value]
        else:
            argv.append(fill(item, parameters))
    if not argv:
        raise CannotExpand("There is no command to run: the list of arguments is empty.")
    return argv


def fill(item: str, parameters: Mapping[str, Any], *, escape: Callable[[str], str] = str) -> str:
    """Fill every placeholder of a text, with each value escaped. Raises CannotExpand."""
    return PLACEHOLDER.sub(lambda match: _filled(match, parameters, escape), item)


def _filled(
    match: re.Match[str], parameters: Mapping[str, Any], escape: Callable[[str], str]
) -> str:
    if literal := match["literal"]:
        return f"{{{literal}}}"
    name = match["name"]
    if name not in parameters:
        raise CannotExpand(f"Parameter {name!r} is not given, and an argument needs it.")
    return escape(_text(name, parameters[name]))


def _text(name: str, value: Any) -> str:
    """Convert a value to text: a string as it is, anything else as JSON."""
    if value is None:
        raise CannotExpand(f"Parameter {name!r} is null, and an argument needs a value.")
    if isinstance(value, list):
        raise CannotExpand(f"Parameter {name!r} is a list: it must be an argument of its own.")
    text = value if isinstance(value, str) else json.dumps(value)
    if "\0" in text:
        raise CannotExpand(f"Parameter {name!r} contains a NUL character: no argument can.")
    return text
