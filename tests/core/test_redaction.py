"""Secrets do not get into what is kept for people."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.core.redaction import REDACTED, redacted, redacted_schema

SECRET = {"type": "string", "secret": True}


@pytest.mark.parametrize(
    "name",
    ["password", "PASSWD", "db_password", "token", "accessToken", "client-secret", "api_key",
     "apiKey", "X-Api-Key", "private_key", "AWS_ACCESS_KEY_ID", "Authorization", "credentials"],
)  # fmt: skip
def test_names_of_secrets_are_known_however_they_are_written(name: str) -> None:
    assert redacted({"a": [{name: "hush"}]}) == {"a": [{name: REDACTED}]}


def test_what_only_sounds_alike_is_shown() -> None:
    value = {"use_token": True, "password": None, "keyboard": "qwerty", "author": "ada", "key": "k"}
    assert redacted(value) == value


def test_schema_is_shown_without_its_values_for_secrets() -> None:
    schema: dict[str, Any] = {
        "properties": {
            "pin": {**SECRET, "default": "4711", "examples": ["0815"]},
            "code": {"$ref": "#/$defs/pin", "enum": ["4711"]},
            "password": {"type": "string", "default": "hush"},
            "size": {"type": "integer", "default": 3, "enum": [3, 4]},
            "default": {"type": "string"},
        },
        "default": {"pin": "4711", "size": 3},
        "$defs": {"pin": SECRET},
        "required": ["pin"],
    }
    shown = redacted_schema(schema)
    properties = shown["properties"]
    assert properties["pin"] == {**SECRET, "default": REDACTED, "examples": [REDACTED]}
    assert properties["code"] == {"$ref": "#/$defs/pin", "enum": [REDACTED]}
    assert properties["password"] == {"type": "string", "default": REDACTED}
    assert properties["size"] == schema["properties"]["size"]
    assert shown["default"] == {"pin": REDACTED, "size": 3}
    for name in ("$defs", "required"):
        assert shown[name] == schema[name]


def test_everything_below_a_secret_name_is_hidden() -> None:
    assert redacted({"credentials": {"user": "ada", "pin": 1}}) == {"credentials": REDACTED}


@pytest.mark.parametrize(
    ("schema", "value", "expected"),
    [
        ({"properties": {"pin": SECRET}}, {"pin": 1, "n": 2}, {"pin": REDACTED, "n": 2}),
        ({"properties": {"pin": {"writeOnly": True}}}, {"pin": [1]}, {"pin": REDACTED}),
        ({"items": {"properties": {"pin": SECRET}}}, [{"pin": 1}], [{"pin": REDACTED}]),
        ({"prefixItems": [{}, SECRET], "items": {}}, ["a", "b", "c"], ["a", REDACTED, "c"]),
        ({"patternProperties": {"^p": SECRET}}, {"pin": 1, "n": 2}, {"pin": REDACTED, "n": 2}),
        ({"patternProperties": {"(": SECRET}}, {"pin": 1}, {"pin": REDACTED}),
        (
            {"properties": {"n": {}}, "additionalProperties": SECRET},
            {"pin": 1, "n": 2},
            {"pin": REDACTED, "n": 2},
        ),
        ({"anyOf": [{}, {"properties": {"pin": SECRET}}]}, {"pin": 1}, {"pin": REDACTED}),
        (
            {"$ref": "#/$defs/who~1what", "$defs": {"who/what": {"properties": {"pin": SECRET}}}},
            {"pin": 1},
            {"pin": REDACTED},
        ),
        ({"writeOnly": True}, {"n": 2}, REDACTED),
        ({"$ref": "#a", "$defs": {"b": {"$anchor": "a", "secret": True}}}, {"n": 2}, REDACTED),
        ({"dependentSchemas": {"n": {"secret": True}}}, {"n": 2}, REDACTED),
        ({"unevaluatedProperties": SECRET}, {"pin": 1}, {"pin": REDACTED}),
        ({"unevaluatedItems": SECRET}, [1], [REDACTED]),
        ({"contains": SECRET}, [1], [REDACTED]),
    ],
)
def test_what_the_schema_marks_is_hidden(schema: Any, value: Any, expected: Any) -> None:
    assert redacted(value, schema=schema) == expected


@pytest.mark.timeout(30)
def test_exploding_pattern_does_not_keep_the_page_waiting() -> None:
    names = {"a" * 60 + "!": 1, "a" * 100_000: 2}
    shown = redacted(names, schema={"patternProperties": {"^(a+)+$": SECRET}})
    assert shown == {"a" * 60 + "!": 1, "a" * 100_000: REDACTED}


def test_password_within_a_url_is_hidden() -> None:
    assert redacted("amqp://ada:hush@mq/x and http://host/a:b@c") == (
        f"amqp://{REDACTED}@mq/x and http://host/a:b@c"
    )


@pytest.mark.parametrize(
    "schema",
    [
        None,
        True,
        [],
        "x",
        {"$ref": "#"},
        {"$ref": "http://elsewhere/"},
        {"$ref": "#/a/b"},
        {"properties": 7, "items": "x", "allOf": {}, "patternProperties": []},
        {"allOf": [{"$ref": "#"}, {"$ref": "#"}], "items": {"$ref": "#"}},
    ],
)
def test_odd_schemas_do_no_harm(schema: Any) -> None:
    value = {"a": [1, {"b": "c"}]}
    assert redacted(value, schema=schema) == value


def test_the_value_itself_is_left_alone_and_depth_is_bounded() -> None:
    deep: Any = "x"
    for _ in range(10_000):
        deep = [deep]
    assert REDACTED in str(redacted(deep))
    value = {"token": "t"}
    redacted(value)
    assert value == {"token": "t"}
