"""Limits of a schema that hold whatever the value is.

Keywords like `allOf` and `$ref` apply schemas to the very value that is checked. These are counted
as often as they are applied, and must come to an end. A schema below `properties` or `items` is for
a smaller value, which comes to its end by itself; so trees may refer to themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from orchestrator.core.errors import MusterError
from orchestrator.core.schemas.documents import Document, NoSuchReference, Where, children, parts

NODE_LIMIT = 200
"""Schemas that may be applied to one value, each as often as it is."""

PATTERN_LIMIT = 200
"""Patterns of one schema; each is compiled, and takes up to a megabyte."""

IN_PLACE = {"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas"}
REFERENCES = ("$ref", "$dynamicRef")
ENDLESS = "leads back here for the same value, expected a property or an item in between"


class Endless(MusterError):
    """The schema applies itself to the same value."""

    def __init__(self, part: dict[str, Any]) -> None:
        self.part = part
        super().__init__()


class TooMany(MusterError):
    """The schema applies more than 200 schemas to one value."""


def offenders(document: Document) -> Iterator[tuple[Where, str]]:
    """Find the parts that apply too much: the place and the message of each."""
    if (patterns := len(_patterns(document))) > PATTERN_LIMIT:
        yield (), f"expected at most {PATTERN_LIMIT} different patterns, found {patterns:,}"
    yield from _circles_and_crowds(document)


def _circles_and_crowds(document: Document) -> Iterator[tuple[Where, str]]:
    counts: dict[int, int] = {}
    endless, named = False, False
    for where, part in reversed(list(parts(document.schema))):
        try:
            _count(document, part, counts, [])
        except Endless as error:
            endless = True
            # of a circle, the parts that refer; not those that only lead into it
            if error.part is part and (reference := _reference(part)):
                named = True
                yield (*where, reference), ENDLESS
        except TooMany:
            yield where, f"expected at most {NODE_LIMIT} schemas for one value, found more"
            return  # what contains this one has too many as well
    if endless and not named:
        yield (), ENDLESS


def _patterns(document: Document) -> set[str]:
    found = set()
    for _, part in parts(document.schema):
        found |= {part["pattern"]} if "pattern" in part else set()
        found |= set(part.get("patternProperties", ()))
    return found


def _reference(part: dict[str, Any]) -> str:
    return next((name for name in REFERENCES if name in part), "")


def _count(document: Document, part: Any, counts: dict[int, int], open_parts: list[int]) -> int:
    """Return how many schemas this one applies to its value, itself included.

    Raises Endless and TooMany. `counts` keeps the answers for one document.
    """
    if not isinstance(part, dict):
        return 1
    if id(part) in counts:
        return counts[id(part)]
    if id(part) in open_parts:
        raise Endless(part)
    if len(open_parts) >= NODE_LIMIT:
        raise TooMany
    open_parts.append(id(part))
    total = 1
    for each in _applied(document, part):
        total += _count(document, each, counts, open_parts)
        if total > NODE_LIMIT:
            raise TooMany
    open_parts.pop()
    counts[id(part)] = total
    return total


def _applied(document: Document, part: dict[str, Any]) -> Iterator[Any]:
    for name in REFERENCES:
        if isinstance(part.get(name), str):
            try:
                yield document.resolve(part[name])
            except NoSuchReference:
                continue  # a fault of its own
    yield from (each for where, each in children(part) if where[0] in IN_PLACE)
