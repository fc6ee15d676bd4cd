"""Paths to values: `trigger.body.level`, `trigger.headers['X-Event']`, `item.tags[0]`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.automation.problems import nearest_or_all
from orchestrator.core.errors import MusterError
from orchestrator.core.redaction import quoted

LENGTH_LIMIT = 500
"""Characters of a path."""

ROOTS = ("trigger", "event")
"""The names that a path may begin with: the payload, and what else is known of the event."""
ITEM = "item"
"""One more inside `search`: the element that is looked at."""

NO_KEYS = "a criterion cannot depend on a key: what matches would tell its value"

Roots = Mapping[str, Any]
Reader = Callable[[Roots], Any]

_ROOT = re.compile(r"[A-Za-z_]\w*")
_NAME = re.compile(r"\.([^.\[\]'\"*?#\s()]+)")
_INDEX = re.compile(r"\[([0-9]{1,9})\]")
_QUOTED = re.compile(r"\[(?:'([^']*)'|\"([^\"]*)\")\]")
_REST = re.compile(r"\s*(?:#.*)?", re.DOTALL)
_WILDCARDS = ("[*", "[?", ".*", "..", "[:", "[(")


class InvalidPath(MusterError):
    """The path is none; the text says what was expected and found."""


@dataclass(frozen=True)
class Path:
    """A root, and the names and positions that lead from it to a value."""

    text: str
    """As written, without what follows a `#`."""
    root: str
    steps: tuple[str | int, ...]

    def reader(self) -> Reader:
        """Make the function that reads the value: None if there is no such place, or null."""
        root, steps = self.root, self.steps
        if any(isinstance(step, int) for step in steps):
            return lambda roots: _read(roots[root], steps)
        match steps:
            case ():
                return lambda roots: roots[root]
            case (name,):
                return lambda roots: _member(roots[root], name)
        return lambda roots: _read_names(roots[root], steps)


def parse(text: str, *, in_search: bool = False) -> Path:
    """Read a path. Text after `#` is ignored. Raises InvalidPath."""
    if len(text) > LENGTH_LIMIT:
        raise InvalidPath(f"expected a path of at most {LENGTH_LIMIT} characters")
    begin = _ROOT.match(text)
    position = begin.end() if begin else 0
    root = _checked_root(begin[0] if begin else "", text, in_search)
    steps: list[str | int] = []
    while not _REST.fullmatch(text, position):
        step, position = _step(text, position)
        steps.append(step)
    return Path(text[:position], root, tuple(steps))


def _checked_root(root: str, text: str, in_search: bool) -> str:
    if root == "keys":
        raise InvalidPath(NO_KEYS)
    known = (*ROOTS, ITEM) if in_search else ROOTS
    if root == ITEM and not in_search:
        raise InvalidPath("item: only criteria inside of a search have it")
    if root not in known:
        hint = nearest_or_all(root or text, (*known, "all", "any", "not"))
        raise InvalidPath(f"unknown name at the beginning of a path, {hint}")
    return root


def _step(text: str, position: int) -> tuple[str | int, int]:
    if name := _NAME.match(text, position):
        return name[1], name.end()
    if index := _INDEX.match(text, position):
        return int(index[1]), index.end()
    if name := _QUOTED.match(text, position):
        return name[1] if name[1] is not None else name[2], name.end()
    rest = text[position:]
    hint = ""
    if rest.startswith(_WILDCARDS) or re.match(r"\[[0-9]*[:,]", rest):
        hint = ": use search to look at the elements of a list"
    raise InvalidPath(f"expected .name, ['name'] or [0], found {quoted(rest)}{hint}")


def _member(value: Any, name: Any) -> Any:
    return value.get(name) if isinstance(value, dict) else None


def _read_names(value: Any, names: tuple[Any, ...]) -> Any:
    for name in names:
        if not isinstance(value, dict):
            return None
        value = value.get(name)
    return value


def _read(value: Any, steps: tuple[str | int, ...]) -> Any:
    for step in steps:
        if isinstance(step, int):
            value = value[step] if isinstance(value, list) and step < len(value) else None
        else:
            value = _member(value, step)
    return value
