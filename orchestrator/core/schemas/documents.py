"""A schema as it is used again and again: its keywords and references looked up once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any
from urllib.parse import unquote

from orchestrator.core.errors import MusterError
from orchestrator.core.schemas import canonical
from orchestrator.core.schemas.checking import Rule
from orchestrator.core.schemas.keywords import KEYWORDS

Where = tuple[str | int, ...]

ONE = ("not", "if", "then", "else", "items", "contains", "additionalProperties", "propertyNames",
       "unevaluatedItems", "unevaluatedProperties")  # fmt: skip
LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
MAPPINGS = ("dependentSchemas", "properties", "patternProperties", "$defs", "definitions")


class NoSuchReference(MusterError):
    """The schema has no such part."""


class Document:
    """A schema with all its parts. It never changes, so what was looked up stays true."""

    def __init__(self, schema: Any) -> None:
        self.schema = schema
        # by identity: the schema is kept here, so no other object can get the number of a part
        self._rules: dict[int, Sequence[Rule]] = {}
        self._keys: dict[int, frozenset[Any]] = {}
        self._targets: dict[str, Any] = {}

    def rules(self, schema: dict[str, Any]) -> Sequence[Rule]:
        """Return the keywords of a part, each with its argument."""
        known = self._rules.get(id(schema))
        if known is None:
            pairs = ((KEYWORDS[name], value) for name, value in schema.items() if name in KEYWORDS)
            known = tuple((*keyword, argument) for keyword, argument in pairs)
            self._rules[id(schema)] = known
        return known

    def keys(self, values: list[Any]) -> frozenset[Any]:
        """Return the canonical keys of an `enum`."""
        known = self._keys.get(id(values))
        if known is None:
            known = self._keys[id(values)] = frozenset(map(canonical.key, values))
        return known

    def resolve(self, reference: str) -> Any:
        """Return the part that `#`, `#/a/b` or `#anchor` refers to. Raises NoSuchReference."""
        if reference not in self._targets:
            self._targets[reference] = self._target(reference)
        return self._targets[reference]

    def _target(self, reference: str) -> Any:
        if not reference.startswith("#"):
            raise NoSuchReference
        fragment = unquote(reference[1:])
        if fragment and not fragment.startswith("/"):
            if fragment not in self._anchors:
                raise NoSuchReference
            return self._anchors[fragment]
        target = self.schema
        for step in fragment.split("/")[1:]:
            target = _below(target, step.replace("~1", "/").replace("~0", "~"))
        return target

    @cached_property
    def _anchors(self) -> dict[str, Any]:
        return {
            part[name]: part
            for _, part in parts(self.schema)
            for name in ("$anchor", "$dynamicAnchor")
            if isinstance(part.get(name), str)
        }


def parts(schema: Any, where: Where = ()) -> Iterator[tuple[Where, dict[str, Any]]]:
    """Find the schema and all schemas in it that are mappings, each with its place.

    Not recursive: whoever wrote the schema controls the depth.
    """
    waiting = [(where, schema)]
    while waiting:
        place, part = waiting.pop()
        if isinstance(part, dict):
            yield place, part
            waiting += [((*place, *step), each) for step, each in children(part)]


def children(schema: Mapping[str, Any]) -> Iterator[tuple[Where, Any]]:
    """Find the schemas right inside of this one, each with the way to it."""
    for name in ONE:
        if name in schema:
            yield (name,), schema[name]
    for name in LISTS:
        if isinstance(schema.get(name), list):
            yield from (((name, index), each) for index, each in enumerate(schema[name]))
    for name in MAPPINGS:
        if isinstance(schema.get(name), dict):
            yield from (((name, key), each) for key, each in schema[name].items())


def _below(target: Any, step: str) -> Any:
    if isinstance(target, dict) and step in target:
        return target[step]
    if isinstance(target, list) and step.isdecimal() and int(step) < len(target):
        return target[int(step)]
    raise NoSuchReference
