"""The rules of one trigger."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.automation.criteria import BookRule, Criteria, RuleBook, compile_criteria
from orchestrator.automation.criteria.rulebook import INDEX_FROM
from orchestrator.automation.criteria.scope import Scope
from tests.automation.criteria.asking import facts

TOO_WIDE = {
    "trigger.list": {
        "type": "search", "condition": "any", "pattern": {"item": {"type": "eq", "pattern": 1}}
    }
}  # fmt: skip


def eq(path: str, pattern: Any) -> dict[str, Any]:
    return {path: {"type": "eq", "pattern": pattern}}


def rule(key: Any, criteria: Any, *, is_backstop: bool = False) -> BookRule[Any]:
    return BookRule(key, compile_criteria(criteria), is_backstop)


def matching(rules: list[BookRule[Any]], payload: Any) -> list[Any]:
    return [key for key, outcome in RuleBook(rules).matching(facts(payload)) if outcome.matched]


def count_asked(monkeypatch: pytest.MonkeyPatch) -> list[Criteria]:
    asked: list[Criteria] = []
    decide_over = Criteria.decide_over

    def decide(self: Criteria, *arguments: Any) -> Any:
        asked.append(self)
        return decide_over(self, *arguments)

    monkeypatch.setattr(Criteria, "decide_over", decide)
    return asked


def test_rules_match_in_their_order() -> None:
    rules = [rule(key, eq("trigger.a", 1)) for key in "cab"]
    assert matching(rules, {"a": 1}) == ["c", "a", "b"]


def test_order_is_the_same_with_an_index_and_without() -> None:
    rules = []
    for number in range(40):
        criteria = eq("trigger.a", number % 2) if number % 4 else {}
        rules.append(rule(number, criteria))
    assert matching(rules, {"a": 1}) == [n for n in range(40) if n % 4 == 0 or n % 2]


def test_only_rules_that_may_match_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = [rule(n, eq("trigger.host", f"h{n}") | eq("trigger.up", 1)) for n in range(100)]
    rules += [rule("any", {}), rule("other", eq("trigger.other", 1))]
    asked = count_asked(monkeypatch)
    assert matching(rules, {"host": "h7", "up": 1}) == [7, "any"]
    assert len(asked) == 3


def test_path_with_the_most_values_is_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = [rule(n, eq("trigger.kind", "up") | eq("trigger.host", n)) for n in range(50)]
    asked = count_asked(monkeypatch)
    assert matching(rules, {"host": 3, "kind": "up"}) == [3]
    assert len(asked) == 1


def test_few_rules_are_all_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = [rule(n, eq("trigger.host", n)) for n in range(INDEX_FROM - 1)]
    asked = count_asked(monkeypatch)
    assert matching(rules, {"host": 3}) == [3]
    assert len(asked) == len(rules)


@pytest.mark.parametrize(
    "criteria",
    [
        {"any": [eq("trigger.a", 1), eq("trigger.b", 1)]},
        {"not": eq("trigger.a", 2)},
        eq("trigger.a", "{{ trigger.b }}"),
        eq("trigger.a", [1]),
    ],
)
def test_equality_that_need_not_hold_is_no_index(criteria: Any) -> None:
    assert not list(compile_criteria(criteria).required_values())


def test_backstop_is_asked_only_if_no_other_rule_matched() -> None:
    rules = [
        rule("backstop", {}, is_backstop=True),
        rule("other backstop", eq("trigger.a", 3), is_backstop=True),
        rule("first", eq("trigger.a", 1)),
        rule("second", eq("trigger.a", 2)),
    ]
    assert matching(rules, {"a": 1}) == ["first"]
    assert matching(rules, {"a": 3}) == ["backstop", "other backstop"]
    assert matching(rules, {}) == ["backstop"]


def test_rule_that_breaks_is_broken_for_itself_only() -> None:
    rules = [rule("before", {}), rule("wide", TOO_WIDE), rule("after", {})]
    found = list(RuleBook(rules).matching(facts({"list": [0] * 2_000})))
    assert [(key, outcome.matched, outcome.reason) for key, outcome in found] == [
        ("before", True, ""),
        ("wide", False, "payload_too_wide"),
        ("after", True, ""),
    ]


def test_broken_rule_has_not_matched_so_backstops_are_asked() -> None:
    rules = [rule("wide", TOO_WIDE), rule("backstop", {}, is_backstop=True)]
    found = list(RuleBook(rules).matching(facts({"list": [0] * 2_000})))
    assert [(key, outcome.broken) for key, outcome in found] == [
        ("wide", True),
        ("backstop", False),
    ]


def test_fault_of_ours_breaks_one_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = [rule("faulty", eq("trigger.a", 1)), rule("sound", eq("trigger.a", 1))]

    def fail(scope: Scope) -> bool:
        raise ZeroDivisionError("a fault")

    monkeypatch.setattr(rules[0].criteria, "_holds", fail)
    found = list(RuleBook(rules).matching(facts({"a": 1})))
    assert [(key, outcome.reason) for key, outcome in found] == [
        ("faulty", "criteria_failed"),
        ("sound", ""),
    ]
    assert found[0][1].message == "the evaluation failed with ZeroDivisionError: a fault"
