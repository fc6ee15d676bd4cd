"""Equality of JSON values: 1 is 1.0, true is not 1, and the order of properties does not matter."""

from __future__ import annotations

import json
from typing import Any


def key(value: Any) -> str | tuple[str]:
    """Return the same hashable value for equal JSON values, and for no others."""
    # a text is its own key; the tuple keeps the others apart from it
    return value if isinstance(value, str) else (json.dumps(_plain(value), sort_keys=True),)


def weight(found: str | tuple[str]) -> int:
    """The steps that making or comparing this key costs."""
    return len(found if isinstance(found, str) else found[0]) // 5


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
