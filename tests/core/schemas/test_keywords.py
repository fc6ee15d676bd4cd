"""Keywords agree with the library `jsonschema`, and with the standard where that is too slow."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from orchestrator.core import schemas

SCHEMAS: list[Any] = [
    True,
    False,
    {"type": ["integer", "null", "boolean"]},
    {"type": "number"},
    {"enum": [1, "a", [1], {"a": 1}, None]},
    {"const": 0},
    {"const": {"a": [True]}},
    {"minimum": 1, "exclusiveMaximum": 3},
    {"maximum": 1, "exclusiveMinimum": -1},
    {"multipleOf": 2},
    {"minLength": 1, "maxLength": 2},
    {"pattern": "^[ab]*$"},
    {"minItems": 1, "maxItems": 2, "uniqueItems": True},
    {"minProperties": 1, "maxProperties": 1},
    {"prefixItems": [{"type": "integer"}], "items": {"type": "string"}},
    {"prefixItems": [True], "items": False},
    {"contains": {"const": 1}, "maxContains": 1},
    {"contains": {"const": 1}, "minContains": 0, "maxContains": 1},
    {"required": ["a"], "dependentRequired": {"a": ["b"]}},
    {"properties": {"a": {"type": "integer"}}, "additionalProperties": False},
    {"patternProperties": {"^a": {"type": "integer"}}, "additionalProperties": {"type": "string"}},
    {"propertyNames": {"maxLength": 1}},
    {"dependentSchemas": {"a": {"maxProperties": 1}}},
    {"allOf": [{"type": "array"}, {"minItems": 1}]},
    {"anyOf": [{"type": "integer"}, {"minLength": 1}, {"required": ["a"]}]},
    {"oneOf": [{"type": "integer"}, {"minimum": 1}]},
    {"not": {"type": ["object", "array"]}},
    {"if": {"type": "integer"}, "then": {"minimum": 1}, "else": {"type": "string"}},
    {"properties": {"a": {"$ref": "#"}}, "items": {"$ref": "#/$defs/n"},
     "type": ["object", "array"], "$defs": {"n": {"$anchor": "n", "type": ["integer", "array"]}}},
    {"$ref": "#n", "$defs": {"n": {"$anchor": "n", "type": "integer"}}},
    {"$dynamicRef": "#n", "$defs": {"n": {"$dynamicAnchor": "n", "type": "object"}}},
    {"allOf": [{"properties": {"a": {}}}], "unevaluatedProperties": False},
    {"anyOf": [{"properties": {"a": {"type": "integer"}}}, {"required": ["b"]}],
     "patternProperties": {"^b": True}, "unevaluatedProperties": {"type": "integer"}},
    {"if": {"required": ["a"]}, "then": {"properties": {"a": True}},
     "dependentSchemas": {"b": {"properties": {"b": True}}}, "unevaluatedProperties": False},
    {"allOf": [{"prefixItems": [True]}], "contains": {"const": 1}, "unevaluatedItems": False},
    {"$ref": "#/$defs/n", "unevaluatedItems": {"type": "string"},
     "$defs": {"n": {"prefixItems": [True]}}},
    {"allOf": [{"unevaluatedProperties": {"type": "integer"}}], "unevaluatedProperties": False},
]  # fmt: skip

SCALARS = (
    st.none() | st.booleans() | st.integers(-2, 4) | st.sampled_from([0.0, 1.0, 1.5, "", "a", "bc"])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "ab"]), inner)
    ),
    max_leaves=6,
)


@pytest.mark.parametrize("schema", SCHEMAS)
def test_the_library_agrees_on_what_is_valid(schema: Any) -> None:
    document, library = schemas.Document(schema), Draft202012Validator(schema)
    assert list(schemas.faults(document)) == []

    @given(VALUES)
    def agrees(value: Any) -> None:
        assert (not list(schemas.findings(document, value))) == library.is_valid(value)

    agrees()


@pytest.mark.parametrize(
    ("items", "unique"),
    [
        ([1, 1.0], False),
        ([1, True], True),
        ([0, False], True),
        (["1", 1], True),
        ([{"a": 1, "b": 2}, {"b": 2.0, "a": 1}], False),
        ([[1], [True]], True),
        ([{"a": 1}, {"a": True}], True),
        ([1e300, 10**300], True),
        ([2.0**70, 2**70], False),
        ([-0.0, 0], False),
        ([None, "null"], True),
        (["(1,)", [1], "[1]"], True),
    ],
)
def test_items_are_equal_as_json_has_it(items: list[Any], unique: bool) -> None:
    found = list(schemas.findings(schemas.Document({"uniqueItems": True}), items))
    assert (found == []) is unique


@pytest.mark.parametrize(
    ("of", "value", "fits"),
    [
        (0.1, 0.3, True),
        (0.1, 0.35, False),
        (0.01, 10**400, True),
        (3, 10**400, False),
        (1e-8, 1e308, True),
    ],
)
def test_multiples_are_exact_and_never_overflow(of: Any, value: Any, fits: bool) -> None:
    found = list(schemas.findings(schemas.Document({"multipleOf": of}), value))
    assert (found == []) is fits
