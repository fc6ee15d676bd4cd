"""References to keys: found, checked, replaced."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.core import key_references
from orchestrator.core.redaction import redacted, redacted_text

STRIPE = {"$key": "billing/stripe"}
BEARER = {"$text": ["Bearer ", STRIPE, "!"]}


def test_references_are_found_with_their_places() -> None:
    value = {"a": [STRIPE, {"b": BEARER}], "c": "billing/stripe", "d": {}}
    assert sorted(key_references.found(value)) == [
        (("a", 0), "billing/stripe"),
        (("a", 1, "b"), "billing/stripe"),
    ]


def test_values_take_the_places_of_references() -> None:
    value = {"a": [STRIPE, {"b": BEARER}], "n": 1}
    filled = key_references.replaced(value, {"billing/stripe": "sk"})
    assert filled == {"a": ["sk", {"b": "Bearer sk!"}], "n": 1}
    assert value["a"] == [STRIPE, {"b": BEARER}]


@pytest.mark.parametrize(
    "wrong",
    [
        {"$key": "stripe"},
        {"$key": "Billing/stripe"},
        {"$key": "billing/stripe", "more": 1},
        {"$key": ["billing/stripe"]},
        {"$key": "billing/" + "x" * 61},
        {"$key": "billing/stripe\n"},
        {"$text": "Bearer"},
        {"$text": []},
        {"$text": ["no key in it"]},
        {"$text": [{"$text": [STRIPE]}]},
        {"$text": [1, STRIPE]},
    ],
)
def test_what_only_looks_like_a_reference_is_a_fault(wrong: Any) -> None:
    assert not key_references.is_reference(wrong)
    ((place, message),) = key_references.faults({"a": wrong})
    assert place == ("a",)
    assert message.startswith("expected {")


def test_depth_is_bounded_by_nothing_here() -> None:
    deep: Any = STRIPE
    for _ in range(10_000):
        deep = [deep]
    assert len(list(key_references.found(deep))) == 1


def test_reference_is_shown_where_a_secret_is_not() -> None:
    value = {"token": STRIPE, "password": "hunter2", "header": BEARER}
    assert redacted(value, schema={"properties": {"header": {"secret": True}}}) == {
        "token": STRIPE,
        "password": "***",
        "header": {"$text": ["***", STRIPE, "***"]},
    }


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('{"token": "abc", "n": 1}', '{"token": "***", "n": 1}'),
        ('{"n": 1}  ', '{"n": 1}  '),
        ("password=hunter2&user=ada", "password=***&user=ada"),
        ('broken {"api_key": "a b c", "n": 1', 'broken {"api_key": ***, "n": 1'),
        ("Authorization: Bearer abc.def", "Authorization: ***"),
        ("amqp://ada:hush@mq/x", "amqp://***@mq/x"),
        ("nothing to hide", "nothing to hide"),
    ],
)
def test_text_of_unknown_form_is_redacted_by_name(text: str, shown: str) -> None:
    assert redacted_text(text) == shown


@pytest.mark.timeout(20)
@pytest.mark.parametrize("text", ["token" * 200_000, "token=" * 170_000, "a" * 1_000_000])
def test_long_text_is_redacted_in_time(text: str) -> None:
    redacted_text(text)
