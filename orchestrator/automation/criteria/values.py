"""JSON values: equality and kinds, with no conversion between them."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from orchestrator.core.json_values import is_number


def is_text(value: Any) -> bool:
    return isinstance(value, str)


def same(first: Any, second: Any) -> bool:
    """JSON equality: 1 is 1.0, true is not 1, objects are compared by name, lists in order."""
    if isinstance(first, str):
        return isinstance(second, str) and first == second
    if first is None or isinstance(first, bool):
        return first is second
    if isinstance(first, dict):
        return (
            isinstance(second, dict)
            and len(first) == len(second)
            and all(name in second and same(value, second[name]) for name, value in first.items())
        )
    if isinstance(first, list | tuple):
        return (
            isinstance(second, list | tuple)
            and len(first) == len(second)
            and all(map(same, first, second))
        )
    return is_number(second) and bool(first == second)


def key_of(value: Any) -> Hashable:
    """Return a key that two scalar values share if they are the same; None for any other value."""
    if isinstance(value, bool):
        return (bool, value)  # in a dict True would be 1
    return value if isinstance(value, str | int | float) else None


def kind_of(value: Any) -> str:
    """Name the kind of a value, as a note does."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, str):
        return "a text"
    if isinstance(value, dict):
        return "an object"
    return "a list" if isinstance(value, list | tuple) else "a number"
