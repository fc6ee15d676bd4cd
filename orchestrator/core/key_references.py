"""References to keys inside parameters: `{"$key": "billing/stripe"}`.

`{"$text": ["Bearer ", {"$key": "billing/stripe"}]}` is a text with keys in it. A reference is what
is stored and shown; its value is put in its place at the claim, see `executions.opening`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

KEY, TEXT = "$key", "$text"

REFERENCE = re.compile(r"[a-z0-9_-]{1,60}/[a-z0-9_-]{1,60}")
EXPECTED = "an owner and a name of a-z, 0-9, _ and -, such as billing/stripe"

Path = tuple[str | int, ...]


def is_reference(value: Any) -> bool:
    """Return True for a well-formed `{"$key": ...}` or `{"$text": [...]}`."""
    if not isinstance(value, Mapping) or len(value) != 1:
        return False
    if KEY in value:
        return isinstance(value[KEY], str) and REFERENCE.fullmatch(value[KEY]) is not None
    parts = value.get(TEXT)
    if not isinstance(parts, list) or not all(_is_part(part) for part in parts):
        return False
    return any(isinstance(part, Mapping) for part in parts)


def found(value: Any) -> Iterator[tuple[Path, str]]:
    """Find the keys that a JSON value refers to, each with the place of its reference."""
    for path, item in _places(value):
        for part in item.get(TEXT, [item]):
            if isinstance(part, Mapping) and isinstance(part.get(KEY), str):
                yield path, part[KEY]


def faults(value: Any) -> Iterator[tuple[Path, str]]:
    """Find what only looks like a reference, as pairs of path and message."""
    for path, item in _places(value):
        if not is_reference(item):
            expected = f'{{"{KEY}": ...}} with {EXPECTED}'
            if TEXT in item:
                expected = f'{{"{TEXT}": [...]}} with texts, and {{"{KEY}": ...}} among them'
            yield path, f"expected {expected}, and nothing beside it"


def replaced(value: Any, values: Mapping[str, str], *, of: type[str] = str) -> Any:
    """Return the JSON value with the value of its key in place of each reference, as an `of`."""
    if isinstance(value, Mapping):
        if is_reference(value):
            return of("".join(map(str, _parts(value, values))))
        return {name: replaced(item, values, of=of) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [replaced(item, values, of=of) for item in value]
    return value


def _parts(reference: Mapping[str, Any], values: Mapping[str, str]) -> Iterator[str]:
    for part in reference.get(TEXT, [reference]):
        yield part if isinstance(part, str) else values[part[KEY]]


def _is_part(part: Any) -> bool:
    return isinstance(part, str) or (is_reference(part) and KEY in part)


def _places(value: Any) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """Find the objects with one of our names. Not recursive: the caller controls the depth."""
    waiting: list[tuple[Path, Any]] = [((), value)]
    while waiting:
        path, item = waiting.pop()
        if isinstance(item, Mapping):
            if KEY in item or TEXT in item:
                yield path, item
            else:
                waiting += [((*path, name), each) for name, each in item.items()]
        elif isinstance(item, list | tuple):
            waiting += [((*path, index), each) for index, each in enumerate(item)]
