"""Parameters are checked as their action's schema says, each problem with its place."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from orchestrator.core import packs
from orchestrator.core.models import Action
from orchestrator.core.packs import Problem
from tests.factories import NOW

LATER = NOW + timedelta(hours=1)


class TestParameters:
    def action(self, schema: dict[str, Any], *, updated_at: datetime = NOW) -> Action:
        return Action(pk=1, ref="net.ping", parameters_schema=schema, updated_at=updated_at)

    def test_valid_parameters_have_no_problems_and_get_no_defaults(self):
        parameters: dict[str, Any] = {}
        schema = {"properties": {"count": {"type": "integer", "default": 3}}}
        assert packs.validate_parameters(self.action(schema), parameters) == []
        assert parameters == {}

    def test_every_problem_has_its_json_pointer(self):
        schema = {
            "type": "object",
            "properties": {"a/b~": {"type": "array", "items": {"type": "integer"}}},
            "required": ["host"],
            "additionalProperties": False,
        }
        problems = packs.validate_parameters(self.action(schema), {"a/b~": [1, "x"], "more": 1})
        assert problems == [
            Problem("", "expected no properties besides 'a/b~', found 'more'"),
            Problem("", "expected the property 'host', found none"),
            Problem("/a~1b~0/1", "expected integer, found 'x'"),
        ]

    def test_a_changed_schema_counts_from_the_next_call_on(self):
        assert packs.validate_parameters(self.action({}), {}) == []
        changed = self.action({"required": ["host"]}, updated_at=LATER)
        assert len(packs.validate_parameters(changed, {})) == 1

    def test_a_long_value_is_not_repeated_whole(self):
        schema = {"properties": {"a": {"type": "integer"}}}
        (problem,) = packs.validate_parameters(self.action(schema), {"a": "x" * 10_000})
        assert len(problem.message) < 400

    def test_problems_are_counted_only_up_to_a_limit(self):
        schema = {"properties": {"a": {"items": {"type": "integer"}}}}
        problems = packs.validate_parameters(self.action(schema), {"a": ["x"] * 10_000})
        assert len(problems) == 50

    def test_nothing_is_fetched_to_validate(self):
        schema = {"$ref": "http://127.0.0.1:9/schema.json"}
        (problem,) = packs.validate_parameters(self.action(schema), {})
        assert problem.message == (
            "the schema of net.ping cannot be used at /$ref: expected a reference that begins with "
            "#, found http://127.0.0.1:9/schema.json"
        )


@pytest.mark.parametrize(
    ("schema", "value", "message"),
    [
        ({"type": ["integer", "null"]}, "x", "expected integer or null, found 'x'"),
        ({"type": "string"}, 3, "expected string, found 3"),
        ({"type": "string"}, None, "expected string, found null"),
        ({"type": "string"}, {"a": 1}, "expected string, found an object of 1"),
        ({"type": "object"}, [1, 2], "expected object, found an array of 2"),
        ({"enum": ["a", 1, None]}, "b", "expected one of 'a', 1, null, found 'b'"),
        ({"const": True}, 1, "expected true, found 1"),
        ({"minimum": 3}, 2, "expected at least 3, found 2"),
        ({"maxItems": 1}, [1, 2], "expected at most 1 item, found an array of 2"),
        ({"pattern": "^a"}, "b", "expected text that matches '^a', found 'b'"),
        ({"format": "date"}, "b", "expected text of the format 'date', found 'b'"),
        ({"uniqueItems": True}, [1, 2, 1.0], "expected no item twice, found item 2 as item 0"),
        ({"anyOf": [{"type": "null"}, {"minLength": 2}]}, "b",
         "expected null or at least 2 characters, found 'b'"),
        ({"oneOf": [{}, {"type": "string"}]}, "b",
         "expected exactly one of 2 alternatives to fit, found 2 that do"),
        ({"propertyNames": {"maxLength": 1}}, {"ab": 1},
         "expected at most 1 character as a property's name, found 'ab'"),
        ({"dependentRequired": {"a": ["b"]}}, {"a": 1},
         "expected the property 'b' beside 'a', found none"),
        ({"not": {}}, 1, "expected what the schema's `not` does not describe, found 1"),
        ({"contains": {"const": 1}}, [2], "expected at least 1 item as in `contains`, found 0"),
    ],
)  # fmt: skip
def test_message_says_what_was_expected_and_found(schema: Any, value: Any, message: str) -> None:
    assert packs.validate_value(schema, value) == [Problem("", message)]


def test_value_longer_than_forty_characters_is_told_by_its_length() -> None:
    schema = {"items": {"type": "null"}}
    short, long, number, address = packs.validate_value(
        schema, ["x" * 40, "y" * 41, 10**40, "mq://ada:hush@host"]
    )
    assert short.message == f"expected null, found '{'x' * 40}'"
    assert long.message == "expected null, found a text of 41 characters"
    assert number.message == "expected null, found a number of 41 digits"
    (pattern,) = packs.validate_value({"format": "regex"}, "[" + "a" * 40)
    assert pattern.message.endswith("found a text of 41 characters: missing ]")
    assert address.message == "expected null, found 'mq://***@host'"


SECRETS: list[tuple[Any, Any, str]] = [
    ({"properties": {"pin": {"type": "integer", "secret": True}}}, {"pin": "hush"}, "/pin"),
    ({"properties": {"pin": {"type": "integer", "writeOnly": True}}}, {"pin": "hush"}, "/pin"),
    (
        {"properties": {"pin": {"type": "integer"}}, "allOf": [{"$ref": "#/$defs/a"}],
         "$defs": {"a": {"properties": {"pin": {"secret": True}}}}},
        {"pin": "hush"},
        "/pin",
    ),
    (
        {"properties": {"of": {"secret": True, "additionalProperties": {"type": "integer"}}}},
        {"of": {"hush": "hush"}},
        "/of",
    ),
    ({"properties": {"of": {"secret": True, "maxProperties": 0}}}, {"of": {"hush": 1}}, "/of"),
    ({"properties": {"of": {"secret": True, "additionalProperties": False}}},
     {"of": {"hush": 1}}, "/of"),
    ({"properties": {"of": {"secret": True, "propertyNames": {"maxLength": 1}}}},
     {"of": {"hush": 1}}, "/of"),
    ({"items": {"secret": True, "anyOf": [{"type": "null"}, {"enum": [1]}]}}, ["hush"], "/0"),
    ({"contains": {"secret": True}, "items": {"format": "regex"}}, ["(hush"], "/0"),
    ({"secret": True, "uniqueItems": True}, ["hush", "hush"], ""),
    ({"properties": {"password": {"type": "integer"}}}, {"password": "hush"}, "/password"),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "value", "pointer"), SECRETS)
def test_message_has_no_character_of_a_secret_and_neither_has_its_place(
    schema: Any, value: Any, pointer: str
) -> None:
    (problem,) = packs.validate_value(schema, value)
    assert problem.pointer == pointer
    assert problem.message.endswith("found a value that is secret")
    assert "hush" not in problem.message


def test_parent_of_a_secret_is_not_quoted_either() -> None:
    schema = {"properties": {"pin": {"secret": True}}, "required": ["n"], "maxProperties": 0}
    problems = packs.validate_value(schema, {"pin": "hush"})
    assert len(problems) == 2
    assert "hush" not in str(problems)


def test_stored_schema_that_would_be_refused_now_is_itself_the_problem() -> None:
    schema = {"properties": {"a": {"pattern": "(?=a)b"}}}
    (problem,) = packs.validate_value(schema, {})
    assert problem.message.startswith(
        "the schema of this value cannot be used at /properties/a/pattern: expected a regular"
    )


def test_what_takes_too_many_steps_is_one_problem() -> None:
    tree = {"properties": {"a": {"$ref": "#/$defs/tree"}}}
    schema = {"$ref": "#/$defs/tree", "$defs": {"tree": {"allOf": [tree, tree]}}}
    value: dict[str, Any] = {}
    for _ in range(40):
        value = {"a": value}
    assert packs.validate_value(schema, value) == [Problem("", "is too costly to check")]
