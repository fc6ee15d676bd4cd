"""The properties and items that a schema, or one that it applies in place, has something to say of.

JSON Schema 2020-12, core, section 11: `unevaluatedProperties` and `unevaluatedItems` are for the
rest. Of subschemas, only those that the value fits count.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any

from orchestrator.core.schemas.checking import Check

Schema = dict[str, Any]


def properties(check: Check, schema: Schema, value: dict[str, Any]) -> Collection[str]:
    """Return the names that are described."""
    return _described(check, schema, value, _own_properties, top=True)


def items(check: Check, schema: Schema, value: list[Any]) -> Collection[int]:
    """Return the positions that are described."""
    return _described(check, schema, value, _own_items, top=True)


Own = Callable[[Check, Schema, Any, bool], Collection[Any]]


def _described(check: Check, schema: Schema, value: Any, own: Own, *, top: bool) -> set[Any]:
    described = set(own(check, schema, value, top))
    check.spend(1 + len(described) // 10)
    for part in _parts(check, schema, value):
        if isinstance(part, dict):
            described |= _described(check, part, value, own, top=False)
    return described


def _own_properties(
    check: Check, schema: Schema, value: dict[str, Any], top: bool
) -> Collection[str]:
    if "additionalProperties" in schema or (not top and "unevaluatedProperties" in schema):
        return value
    patterns = schema.get("patternProperties", ())
    check.spend((len(value) + len(schema.get("properties", ()))) // 10)
    named: set[str] = value.keys() & schema.get("properties", {}).keys()
    return named | {name for name in value for each in patterns if check.matches(each, name)}


def _own_items(check: Check, schema: Schema, value: list[Any], top: bool) -> Collection[int]:
    if "items" in schema or (not top and "unevaluatedItems" in schema):
        return range(len(value))
    described = set(range(min(len(value), len(schema.get("prefixItems", ())))))
    if "contains" in schema:
        wanted = schema["contains"]
        described |= {index for index, item in enumerate(value) if check.fits(item, wanted)}
    return described


def _parts(check: Check, schema: Schema, value: Any) -> Iterator[Any]:
    """Find the subschemas that apply to this very value, and that it fits."""
    for name in ("$ref", "$dynamicRef"):
        if name in schema:
            yield check.document.resolve(schema[name])
    for name in ("allOf", "anyOf", "oneOf"):
        yield from (part for part in schema.get(name, ()) if check.fits(value, part))
    if "if" in schema:
        fits = check.fits(value, schema["if"])
        yield from (schema["if"], schema.get("then")) if fits else (schema.get("else"),)
    if isinstance(value, dict):
        dependent = schema.get("dependentSchemas", {})
        check.spend(len(dependent) // 10)
        yield from (part for name, part in dependent.items() if name in value)
