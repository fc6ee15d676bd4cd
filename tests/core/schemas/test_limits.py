"""No schema and no value keeps a process busy: each check ends, with an answer or as too costly."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.core import schemas
from orchestrator.core.packs import parameters
from orchestrator.core.schemas.checking import Check
from orchestrator.core.schemas.keywords import KEYWORDS

pytestmark = pytest.mark.timeout(60)


def problems(schema: Any) -> list[tuple[str, str]]:
    """What is wrong with a schema: places and messages."""
    return [
        (".".join(map(str, problem.where)), problem.message)
        for problem in parameters.schema_problems(schema)
    ]


def chain(levels: int, link: Any) -> dict[str, Any]:
    """Definitions of which each level is `link` of a reference to the next."""
    below = {f"l{i}": link({"$ref": f"#/$defs/l{i + 1}"}) for i in range(levels)}
    return {"$ref": "#/$defs/l0", "$defs": below | {f"l{levels}": {}}}


def nested(levels: int) -> Any:
    value: Any = {}
    for _ in range(levels):
        value = {"a": value}
    return value


# --- what is refused as a schema -----------------------------------------------------------------

TWICE = chain(14, lambda next_: {"allOf": [next_, next_]})


@pytest.mark.parametrize(
    ("schema", "where"),
    [
        ({"allOf": [{"$ref": "#"}]}, "allOf.0.$ref"),
        ({"$ref": "#"}, "$ref"),
        ({"$dynamicRef": "#a", "$dynamicAnchor": "a"}, "$dynamicRef"),
        ({"if": {"not": {"$ref": "#"}}}, "if.not.$ref"),
        ({"dependentSchemas": {"a": {"$ref": "#"}}}, "dependentSchemas.a.$ref"),
        ({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}, "$defs.a.$ref"),
        ({"properties": {"x": {"oneOf": [{"$ref": "#/properties/x"}]}}},
         "properties.x.oneOf.0.$ref"),
    ],
)  # fmt: skip
def test_schema_that_leads_back_to_the_same_value_is_refused(schema: Any, where: str) -> None:
    found = problems(schema)
    assert where in [place for place, _ in found]
    assert all("leads back here for the same value" in message for _, message in found)


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}}},
        {"$ref": "#/$defs/t", "$defs": {"t": {"items": {"$ref": "#/$defs/t"}}}},
        {"additionalProperties": {"anyOf": [{"type": "string"}, {"$ref": "#"}]}},
        {"properties": {f"p{i}": {"type": "string"} for i in range(1_000)}},
        {"allOf": [{}] * 199},
        chain(198, lambda next_: next_),
    ],
)
def test_trees_and_wide_schemas_are_allowed(schema: Any) -> None:
    assert problems(schema) == []


@pytest.mark.parametrize(
    "schema",
    [
        TWICE,
        chain(30, lambda next_: {"dependentSchemas": {"a": next_, "b": next_}}),
        {"allOf": [{}] * 200},
        {"properties": {"a": {"anyOf": [{}] * 200}}},
        chain(200, lambda next_: next_),
    ],
)
def test_two_hundred_schemas_for_one_value_are_the_most(schema: Any) -> None:
    ((_, message),) = problems(schema)
    assert message == "expected at most 200 schemas for one value, found more"


def test_patterns_of_one_schema_are_limited() -> None:
    schema: Any = {"patternProperties": {f"^a{i}$": {} for i in range(201)}}
    assert problems(schema) == [("", "expected at most 200 different patterns, found 201")]


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {str(i): {"pattern": rf"\p{{L}}{{1,20}}{i}"} for i in range(5_000)}},
        {"properties": {str(i): {"type": "string"} for i in range(100_000)}},
        chain(20_000, lambda next_: next_),
        {"not": nested(5_000)},
    ],
)
def test_check_of_a_huge_schema_ends(schema: Any) -> None:
    assert problems(schema)[:1] in ([("", "is too costly to check")], [])


def test_problems_of_a_schema_are_counted_only_up_to_a_limit() -> None:
    assert len(problems({"required": [{"a": i} for i in range(10_000)]})) == 50


@pytest.mark.parametrize(
    ("schema", "where", "message"),
    [
        ({"properties": {"a": {"$id": "x"}}}, "properties.a.$id", "at the top of a schema only"),
        ({"default": {"a": 1}, "$ref": "#/default"}, "$ref", "expected the place of a schema"),
        ({"$ref": "other.json"}, "$ref", "expected a reference that begins with #"),
        ({"$ref": "#nowhere"}, "$ref", "which the schema does not have"),
        ({"minLength": -1}, "minLength", "expected at least 0, found -1"),
        ({"properties": {"a": {"pattern": "(?!a)"}}}, "properties.a.pattern", "look-ahead (?!"),
        ({"patternProperties": {r"(a)\1": {}}}, "patternProperties", r"a back reference \1"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(schema: Any, where: str, message: str) -> None:
    ((place, text),) = problems(schema)
    assert place == where
    assert message in text


# --- what costs too much with a value, however it got into the database --------------------------


def check(schema: Any, value: Any) -> list[schemas.Finding]:
    return list(schemas.findings(schemas.Document(schema), value))


DOUBLING_BELOW_PROPERTIES = {
    "$ref": "#/$defs/t",
    "$defs": {"t": {"allOf": [{"properties": {"a": {"$ref": "#/$defs/t"}}}] * 2}},
}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"allOf": [{"$ref": "#"}]}, {}),
        (chain(60, lambda next_: {"allOf": [next_, next_]}), {}),
        (
            chain(60, lambda next_: {"dependentSchemas": {"a": next_, "b": next_}})
            | {"unevaluatedProperties": False},
            {"a": 1, "b": 2},
        ),
        (DOUBLING_BELOW_PROPERTIES, nested(49)),
        ({"items": {"const": list(range(100_000))}}, [1] * 100_000),
        ({"items": {"anyOf": [{"minimum": 10**4_000}] * 190}}, [1] * 100_000),
        ({"pattern": "a[ab]{900}c"}, "ab" * 500_000),
        ({"allOf": [{"uniqueItems": True}] * 190}, [{"i": i} for i in range(80_000)]),
    ],
)
def test_check_that_would_take_for_ever_is_too_costly(schema: Any, value: Any) -> None:
    with pytest.raises(schemas.TooCostly):
        check(schema, value)


def test_steps_are_counted_in_every_keyword() -> None:
    arguments: dict[str, Any] = dict.fromkeys(KEYWORDS, 1)
    arguments |= dict.fromkeys(["$ref", "$dynamicRef"], "#/$defs/a")
    for name in KEYWORDS:
        schema = {name: arguments[name]}
        one = Check(schemas.Document(schema), steps=1)
        with pytest.raises(schemas.TooCostly):
            list(one.findings(object(), schema, ()))


WIDE = {str(number): number for number in range(80_000)}
BIG = ["x" * 10] * 80_000


@pytest.mark.parametrize(
    ("schema", "value", "count"),
    [
        ({"uniqueItems": True}, [{"i": i} for i in range(80_000)], 0),
        ({"uniqueItems": True}, [*({"i": i} for i in range(80_000)), {"i": 0}], 1),
        ({"unevaluatedProperties": False}, WIDE, 1),
        ({"allOf": [{"patternProperties": {"^[0-9]": {}}}], "unevaluatedProperties": False},
         WIDE, 0),
        ({"anyOf": [{"type": "string"}] * 190}, BIG, 1),
        ({"pattern": "^(a+)+$"}, "a" * 1_000_000 + "!", 1),
        ({"items": {"type": "string", "maxLength": 10}}, BIG, 0),
    ],
)  # fmt: skip
def test_large_values_are_checked_within_the_steps(schema: Any, value: Any, count: int) -> None:
    assert len(check(schema, value)) == count
