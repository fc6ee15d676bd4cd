"""Criteria of the elements of a list."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.automation.criteria import compile_criteria
from tests.automation.criteria.asking import facts, holds, note

# the example of StackStorm's documentation: a ticket with changed fields
STATUS = {
    "item.field_name": {"type": "equals", "pattern": "Status"},
    "item.to_value": {"type": "equals", "pattern": "Approved"},
}
APPROVED = {"field_name": "Status", "to_value": "Approved"}
SIGNED = {"field_name": "Status", "to_value": "Signed"}
OWNER = {"field_name": "Owner", "to_value": "Approved"}
NEITHER = {"field_name": "Owner", "to_value": "Ann"}


def search(condition: str, pattern: Any = STATUS, path: str = "trigger.fields") -> dict[str, Any]:
    return {path: {"type": "search", "condition": condition, "pattern": pattern}}


@pytest.mark.parametrize(
    ("condition", "fields", "answer"),
    [
        ("any", [SIGNED, APPROVED], True),
        ("any", [SIGNED, OWNER], False),  # no element fits both
        ("any", [], False),
        ("all", [APPROVED, APPROVED], True),
        ("all", [APPROVED, SIGNED], False),
        ("all", [], True),
        ("any2any", [NEITHER, SIGNED], True),
        ("any2any", [NEITHER], False),
        ("any2any", [], False),
        ("all2any", [SIGNED, OWNER], True),
        ("all2any", [SIGNED, NEITHER], False),
        ("all2any", [], True),
        ("any", APPROVED, True),  # an object is a list of one
        ("all", SIGNED, False),
        ("any", "Status", False),
        ("all", None, False),
        ("all", 7, False),
        ("any", [1, None, "x", [APPROVED], APPROVED], True),
    ],
)
def test_search_looks_at_the_elements(condition: str, fields: Any, answer: bool) -> None:
    assert holds(search(condition), {"fields": fields}) is answer


def test_search_says_which_elements_fit() -> None:
    fields = [SIGNED, APPROVED, APPROVED]
    assert note(search("any"), {"fields": fields}) == "2 of 3 elements fit all criteria: 1, 2"
    assert note(search("all2any"), {"fields": [NEITHER]}) == "0 of 1 elements fit some criterion"
    assert note(search("any"), {"fields": 1}) == "expected a list or an object"


def test_item_may_be_the_value_itself() -> None:
    wanted = {"item": {"type": "startswith", "pattern": "prod-"}}
    assert holds(search("any", wanted), {"fields": ["dev-1", "prod-2"]})
    assert not holds(search("all", wanted), {"fields": ["dev-1", "prod-2"]})


def test_searches_may_be_in_each_other_and_each_has_its_item() -> None:
    up = {"item.up": {"type": "eq", "pattern": True}}
    hosts = search("any", search("all", up, "item.ports"), "trigger.hosts")
    assert holds(hosts, {"hosts": [{"ports": [{"up": False}]}, {"ports": [{"up": True}]}]})
    assert not holds(hosts, {"hosts": [{"ports": [{"up": True}, {"up": False}]}]})


def test_criteria_of_an_element_may_be_joined_and_may_look_at_the_rest_of_the_event() -> None:
    pattern = {
        "any": [
            {"item.name": {"type": "eq", "pattern": "{{ trigger.wanted }}"}},
            {"item.size": {"type": "gt", "pattern": "{{ item.limit }}"}},
        ],
        "trigger.wanted": {"type": "exists"},
    }
    assert holds(search("any", pattern), {"wanted": "a", "fields": [{"name": "a"}]})
    assert holds(search("any", pattern), {"wanted": "a", "fields": [{"size": 2, "limit": 1}]})
    assert not holds(search("any", pattern), {"fields": [{"size": 2, "limit": 1}]})


def test_longer_list_than_search_looks_at_breaks_the_rule() -> None:
    criteria = compile_criteria(search("any"))
    assert criteria.matches(facts({"fields": [APPROVED] * 1_000}))
    outcome = criteria.decide(facts({"fields": [APPROVED] * 1_001}))
    assert (outcome.matched, outcome.reason) == (False, "payload_too_wide")
    assert outcome.message == "search looks at 1,000 elements at most, found 1,001"
    assert not criteria.matches(facts({"fields": [APPROVED] * 1_001}))


def test_searches_in_each_other_do_a_bounded_amount_of_work() -> None:
    never = {"item": {"type": "eq", "pattern": 1}}
    nested = search("any", search("any", search("any", never, "item"), "item"))
    wide = [[[0] * 200] * 200] * 200
    outcome = compile_criteria(nested).decide(facts({"fields": wide}))
    assert outcome.reason == "criteria_too_costly"
    long = {"trigger.text": {"type": "contains", "pattern": "b"}}
    outcome = compile_criteria(search("any", long)).decide(
        facts({"fields": [0] * 1_000, "text": "a" * 1_000_000})
    )
    assert outcome.reason == "criteria_too_costly"


def test_patterns_of_the_payload_do_a_bounded_amount_of_work() -> None:
    given = {"item": {"type": "regex", "pattern": "{{ item }}!"}}
    criteria = compile_criteria(search("any", given))
    assert not criteria.decide(facts({"fields": [f"a{n % 100}" for n in range(1_000)]})).broken
    hard = [r"\pL" * 100 + str(n) for n in range(1_000)]
    assert criteria.decide(facts({"fields": hard})).reason == "criteria_too_costly"


def test_cheaper_criteria_are_asked_first() -> None:
    criteria = search("any") | {"trigger.kind": {"type": "eq", "pattern": "ticket"}}
    outcome = compile_criteria(criteria).decide(facts({"fields": [0] * 2_000, "kind": "other"}))
    assert (outcome.matched, outcome.broken) == (False, False)
