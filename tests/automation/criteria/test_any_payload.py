"""Whatever the payload, and whatever the criteria: an answer, the same each time, and soon."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from orchestrator.automation.criteria import (
    BookRule,
    InvalidCriteria,
    RuleBook,
    compile_criteria,
    shown,
)
from orchestrator.automation.criteria.operators import OPERATORS, SEARCH_CONDITIONS, Operator
from orchestrator.automation.criteria.values import key_of, same
from orchestrator.core import expressions
from tests.automation.criteria.asking import facts, leaf

SECONDS = 1.0
"""Far more than it takes: what is not linear would take longer."""

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["2026-03-01T11:00:00Z", "(a+)+$", "\ud800"])
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from("vab") | st.text(max_size=3), inner, max_size=4)
    ),
    max_leaves=12,
)
rendered = st.sampled_from(
    ["{{ trigger.v }}", "{{ trigger.a }}", "{{ trigger }}", "x {{ event.v }}", "{{ 1 // 0 }}"]
)
PATHS = ("trigger", "trigger.v", "trigger.a[0].b", "event.v", "trigger['']")


def fits(operator: Operator, pattern: Any) -> bool:
    if pattern is None or any(expressions.texts(pattern)):
        return False
    return not operator.unfit(pattern)


def bodies_of(operator: Operator) -> st.SearchStrategy[dict[str, Any]]:
    """Criteria with this operator that can be installed, nearly all of them."""
    patterns = st.text(max_size=8) | st.integers() | st.lists(values, max_size=3) | values
    fitting = rendered | patterns.filter(lambda pattern: fits(operator, pattern))
    return st.fixed_dictionaries({"type": st.sampled_from(operator.names), "pattern": fitting})


bodies = st.sampled_from(OPERATORS).flatmap(bodies_of)


def leaves(paths: tuple[str, ...]) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(st.sampled_from(paths), bodies, min_size=1, max_size=2)


def searches(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    body = st.fixed_dictionaries(
        {
            "type": st.just("search"),
            "condition": st.sampled_from(list(SEARCH_CONDITIONS)),
            "pattern": inner,
        }
    )
    return st.dictionaries(st.sampled_from(PATHS), body, min_size=1, max_size=1)


trees = st.recursive(
    leaves(PATHS) | searches(leaves(("item", "item.v", *PATHS))),
    lambda inner: (
        st.fixed_dictionaries({"all": st.lists(inner, min_size=1, max_size=3)})
        | st.fixed_dictionaries({"any": st.lists(inner, min_size=1, max_size=3)})
        | st.fixed_dictionaries({"not": inner})
    ),
    max_leaves=6,
)
whatever = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.filter_too_much]
)


@whatever
@given(criteria=trees, payload=values)
def test_evaluation_never_raises_is_the_same_twice_and_ends(criteria: Any, payload: Any) -> None:
    compiled = compile_criteria(criteria)
    event = facts(payload, v=payload)
    began = time.thread_time()
    first, second = compiled.decide(event), compiled.decide(event)
    assert first == second
    assert first.reason != "criteria_failed"
    assert compiled.explain(event).outcome == first
    shown(compiled.explain(event))
    assert time.thread_time() - began < SECONDS


@whatever
@given(criteria=values | st.dictionaries(st.sampled_from(PATHS), values, min_size=1))
def test_whatever_is_no_criteria_is_refused_with_a_reason(criteria: Any) -> None:
    assume(criteria not in (None, {}))
    with pytest.raises(InvalidCriteria) as refused:
        compile_criteria(criteria)
    assert all(problem.message for problem in refused.value.problems)


@settings(whatever, max_examples=40)
@given(body=bodies, size=st.integers(100_000, 200_000), text=st.text(max_size=3))
def test_long_payload_takes_a_bounded_time(body: Any, size: int, text: str) -> None:
    compiled = compile_criteria({"trigger.v": body})
    for value in ((text or "a") * size, [text] * size):
        began = time.thread_time()
        compiled.decide(facts({"v": value}))
        assert time.thread_time() - began < SECONDS


@whatever
@given(first=values, second=values)
def test_scalars_are_the_same_if_their_keys_are(first: Any, second: Any) -> None:
    for one, other in ((first, second), (first, first)):
        if key_of(one) is not None and key_of(other) is not None:
            assert same(one, other) == (key_of(one) == key_of(other))
        assert same(one, other) == same(other, one)


@whatever
@given(
    wanted=st.lists(st.sampled_from([1, 1.0, True, "a", "1", 0, False]), min_size=16, max_size=40),
    found=st.sampled_from([1, 1.0, True, "a", "1", 0, False, None, [1], {"a": 1}]),
)
def test_book_answers_as_if_every_rule_was_asked(wanted: list[Any], found: Any) -> None:
    rules = [
        BookRule(number, compile_criteria(leaf("eq", value))) for number, value in enumerate(wanted)
    ]
    asked = [rule.key for rule in rules if rule.criteria.matches(facts({"v": found}))]
    assert [key for key, _ in RuleBook(rules).matching(facts({"v": found}))] == asked
