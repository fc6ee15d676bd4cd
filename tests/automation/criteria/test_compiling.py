"""Criteria as documents: paths, groups, and all problems with their places."""

from __future__ import annotations

import json
from typing import Any

import pytest

from orchestrator.automation.criteria import compile_criteria, shown
from tests.automation.criteria.asking import facts, holds, leaf, problems

ONE = {"type": "eq", "pattern": 1}
NO_KEYS = "a criterion cannot depend on a key: what matches would tell its value"
LOOK = ": use search to look at the elements of a list"


def nested(levels: int) -> Any:
    return leaf("eq", 1) if not levels else {"not": nested(levels - 1)}


def searching(levels: int) -> Any:
    if not levels:
        return {"item": ONE}
    return {
        "item" if levels < 4 else "trigger": {
            "type": "search", "condition": "any", "pattern": searching(levels - 1)
        }
    }  # fmt: skip


# --- paths ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "payload"),
    [
        ("trigger.a", {"a": 1}),
        ("trigger.a.b-c.$d:e/f@g", {"a": {"b-c": {"$d:e/f@g": 1}}}),
        ("trigger['a.b']", {"a.b": 1}),
        ('trigger["it\'s"]', {"it's": 1}),
        ("trigger['']", {"": 1}),
        ("trigger.a[1].b[0]", {"a": [0, {"b": [1]}]}),
        ("trigger[0]", [1]),
        ("trigger", 1),
        ("trigger.a#1", {"a": 1}),
        ("trigger.a # the second, .b[*]", {"a": 1}),
        ("trigger['a#1']#2", {"a#1": 1}),
        ("trigger.ünï", {"ünï": 1}),
        ("event.depth", {}),
    ],
)
def test_path_leads_to_its_value(path: str, payload: Any) -> None:
    assert compile_criteria({path: ONE}).matches(facts(payload, depth=1))


@pytest.mark.parametrize(
    ("path", "payload"),
    [
        ("trigger.a", None),
        ("trigger.a", [1]),
        ("trigger.a.b", {"a": "b"}),
        ("trigger.a[1]", {"a": [1]}),
        ("trigger.a[0]", {"a": "x"}),
        ("trigger.a[0]", {"a": {"0": 1}}),
        ("trigger.0", [1]),
        ("trigger.length", [1]),
    ],
)
def test_path_without_a_place_finds_nothing(path: str, payload: Any) -> None:
    assert not holds({path: {"type": "exists"}}, payload)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("keys.github.token", NO_KEYS),
        ("triger.a", "unknown name at the beginning of a path, did you mean 'trigger'?"),
        ("and", "unknown name at the beginning of a path, did you mean 'any'?"),
        ("or", "unknown name at the beginning of a path, expected one of trigger, event, all, any,"
               " not"),
        ("", "unknown name at the beginning of a path, expected one of trigger, event, all, any,"
             " not"),
        ("item.name", "item: only criteria inside of a search have it"),
        ("trigger.a[*].b", f"expected .name, ['name'] or [0], found '[*].b'{LOOK}"),
        ("trigger.a.*", f"expected .name, ['name'] or [0], found '.*'{LOOK}"),
        ("trigger..b", f"expected .name, ['name'] or [0], found '..b'{LOOK}"),
        ("trigger.a[?(@.b)]", f"expected .name, ['name'] or [0], found '[?(@.b)]'{LOOK}"),
        ("trigger.a[0:2]", f"expected .name, ['name'] or [0], found '[0:2]'{LOOK}"),
        ("trigger.a[-1]", "expected .name, ['name'] or [0], found '[-1]'"),
        ("trigger.a b", "expected .name, ['name'] or [0], found ' b'"),
        ("trigger.", "expected .name, ['name'] or [0], found '.'"),
        ("trigger['a]", "expected .name, ['name'] or [0], found \"['a]\""),
        ("trigger." + "a" * 500, "expected a path of at most 500 characters"),
    ],
)  # fmt: skip
def test_path_that_is_none_is_refused(path: str, message: str) -> None:
    (problem,) = problems({path: ONE})
    assert problem.partition(": ")[2] == message


# --- groups --------------------------------------------------------------------------------------


@pytest.mark.parametrize("criteria", [None, {}])
@pytest.mark.parametrize("payload", [{}, None, {"a": 1}])
def test_without_criteria_every_event_matches(criteria: Any, payload: Any) -> None:
    assert holds(criteria, payload)


def test_criteria_of_a_mapping_must_all_hold() -> None:
    criteria = {
        "trigger.level#1": {"type": "ge", "pattern": 3},
        "trigger.level#2": {"type": "lt", "pattern": 5},
    }
    assert [level for level in range(8) if holds(criteria, {"level": level})] == [3, 4]


def test_groups_join_criteria() -> None:
    a, b, c = ({f"trigger.{name}": ONE} for name in "abc")
    criteria = {"any": [{"all": [a, b]}, {"not": {"any": [a, c]}}]}
    for number in range(8):
        payload = {name: number >> bit & 1 for bit, name in enumerate("abc")}
        expected = bool((payload["a"] and payload["b"]) or not (payload["a"] or payload["c"]))
        assert holds(criteria, payload) is expected


def test_group_stands_beside_other_criteria() -> None:
    criteria = {"trigger.a": ONE, "not": {"trigger.b": ONE, "trigger.c": ONE}}
    assert holds(criteria, {"a": 1, "b": 1})
    assert not holds(criteria, {"a": 1, "b": 1, "c": 1})
    assert not holds(criteria, {"b": 1})


# --- problems ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("criteria", "expected"),
    [
        ([], ["expected a mapping of criteria, found an array of 0"]),
        ({"all": []}, ["all: expected a list of criteria, found an array of 0"]),
        ({"any": {}}, ["any: expected a list of criteria, found an object of 0"]),
        ({"any": [{}]}, ["any[0]: expected at least one criterion, found none"]),
        ({"not": []}, ["not: expected a mapping of criteria, found an array of 0"]),
        ({"all": [{"any": [1]}]}, ["all[0].any[0]: expected a mapping of criteria, found 1"]),
        ({"trigger.a": 1},
         ["['trigger.a']: expected a mapping with type and pattern, found 1"]),
        ({"trigger.a": {}},
         ["['trigger.a']: type: missing key, expected an operator, such as eq"]),
        ({"trigger": {"type": "equal", "pattern": 1}},
         ["trigger.type: unknown operator 'equal', did you mean 'equals'?"]),
        ({"trigger": {"type": 1, "pattern": 1}}, ["trigger.type: expected an operator, found 1"]),
        ({"trigger": {"type": "eq", "patern": 1}},
         ["trigger.patern: unknown key, did you mean 'pattern'?",
          "trigger.pattern: expected a pattern, found none"]),
        ({"trigger": {"type": "eq", "pattern": None}},
         ["trigger.pattern: expected a pattern, found null"]),
        ({"trigger": {"type": "eq", "pattern": 1, "condition": "any"}},
         ["trigger.condition: only search has a condition"]),
        ({"trigger": {"type": "lt", "pattern": True}},
         ["trigger.pattern: expected a number or a text, found true"]),
        ({"trigger": {"type": "startswith", "pattern": 1}},
         ["trigger.pattern: expected a text, found 1"]),
        ({"trigger": {"type": "in", "pattern": 1}},
         ["trigger.pattern: expected a list or a text, found 1"]),
        ({"trigger": {"type": "timediff_lt", "pattern": "60"}},
         ["trigger.pattern: expected a number of seconds, found '60'"]),
        ({"trigger": {"type": "regex", "pattern": "(?<=a)b"}},
         ["trigger.pattern: expected a regular expression of RE2, which has no look-around and no "
          "back references (look-behind (?<=), found '(?<=a)b'"]),
        ({"trigger": {"type": "regex", "pattern": r"(a)\1"}},
         ["trigger.pattern: expected a regular expression of RE2, which has no look-around and no "
          "back references (a back reference \\1), found '(a)\\\\1'"]),
        ({"trigger": {"type": "matchwildcard", "pattern": "[z-a]"}},
         ["trigger.pattern: expected a text with *, ? and [a-z] (invalid character class range: "
          "z-a), found '[z-a]'"]),
        ({"trigger": {"type": "eq", "pattern": {"a": ["{{ keys.a.b }}"]}}},
         [f"trigger.pattern.a[0]: {NO_KEYS}"]),
        ({"trigger": {"type": "eq", "pattern": "{{ item.a }}"}},
         ["trigger.pattern: expected trigger, event or a text in quotes, found 'item'"]),
        ({"trigger": {"type": "eq", "pattern": "{{ trigger.a"}},
         ["trigger.pattern: unexpected end of template, expected 'end of print statement'."]),
        ({"trigger": {"type": "search", "pattern": {"item": ONE}}},
         ["trigger.condition: expected one of any, all, any2any, all2any, found none"]),
        ({"trigger": {"type": "search", "condition": "some", "pattern": {}}},
         ["trigger.condition: expected one of any, all, any2any, all2any, found 'some'",
          "trigger.pattern: expected a mapping of criteria with paths such as item.name, found an "
          "object of 0"]),
        ({"trigger": {"type": "search", "condition": "any", "pattern": {"tem.a": ONE}}},
         ["trigger.pattern['tem.a']: unknown name at the beginning of a path, did you mean 'item'?"
          ]),
    ],
)  # fmt: skip
def test_every_problem_has_its_place(criteria: Any, expected: list[str]) -> None:
    assert problems(criteria) == expected


def test_all_problems_are_reported_at_once() -> None:
    assert len(problems({"all": [{"keys.a": ONE}, {"trigger.b": {}}], "trigger": 1})) == 3


def test_limits() -> None:
    assert not problems(nested(5))
    assert problems(nested(6)) == [
        "not.not.not.not.not.not: expected at most 5 levels of all, any and not"
    ]
    assert not problems({f"trigger.a#{n}": ONE for n in range(100)})
    assert problems({f"trigger.a#{n}": ONE for n in range(101)}) == [
        "['trigger.a#100']: expected at most 100 criteria, found more"
    ]
    assert not problems({"trigger": searching(4)["trigger"] | {"pattern": searching(2)}})
    (problem,) = problems(searching(4))
    assert problem.endswith(": expected at most 3 searches in each other")


def test_what_may_not_be_meant_is_a_warning() -> None:
    criteria = compile_criteria(
        {
            "trigger.a": {"type": "in", "pattern": "abc"},
            "trigger.b": {"type": "search", "condition": "all", "pattern": {"item": ONE}},
        }
    )
    assert [str(warning) for warning in criteria.warnings] == [
        "['trigger.a'].pattern: a text: looks for the value as a part of it; for equal values "
        "write a list",
        "['trigger.b'].condition: all also holds for an empty list",
    ]


# --- explanations --------------------------------------------------------------------------------


def test_explanation_is_json_and_has_every_leaf() -> None:
    criteria = {
        "trigger.kind": {"type": "eq", "pattern": "a"},
        "any": [
            {"trigger.level#1": {"type": "gt", "pattern": "{{ trigger.limit + 1 }}"}},
            {"not": {"trigger.text": {"type": "exists"}}},
        ],
    }
    payload = {"kind": "b", "level": 4, "limit": 2, "text": "x" * 2_000}
    explained = shown(compile_criteria(criteria).explain(facts(payload)))
    assert json.loads(json.dumps(explained)) == explained
    assert explained == {
        "matched": False,
        "reason": "",
        "message": "",
        "criteria": [
            {"where": "['trigger.kind']", "path": "trigger.kind", "operator": "eq", "value": "b",
             "pattern": "a", "answer": False, "note": ""},
            {"where": "any[0]['trigger.level#1']", "path": "trigger.level", "operator": "gt",
             "value": 4, "pattern": 3, "answer": True, "note": ""},
            {"where": "any[1].not['trigger.text']", "path": "trigger.text", "operator": "exists",
             "value": "(a text of 2,000 characters)", "pattern": None, "answer": True, "note": ""},
        ],
    }  # fmt: skip


def test_explanation_of_a_broken_rule_says_where() -> None:
    search = {"type": "search", "condition": "any", "pattern": {"item": ONE}}
    criteria = compile_criteria({"trigger.a": search, "trigger.b": {"type": "nexists"}})
    explained = criteria.explain(facts({"a": [0] * 2_000}))
    assert explained.outcome.reason == "payload_too_wide"
    assert [leaf.note for leaf in explained.leaves] == [
        "search looks at 1,000 elements at most, found 2,000",
        "there is no such value, or it is null",
    ]
    assert [leaf.answer for leaf in explained.leaves] == [False, True]
