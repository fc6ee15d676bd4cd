"""Expressions: data in, data out, and no way to anything else or to much of anything."""

from __future__ import annotations

import contextlib
import time
import tracemalloc
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core import expressions
from orchestrator.core.expressions import CannotEvaluate, InvalidExpression

read = partial(expressions.read, names=("task", "steps", "batch", "keys"))
render = partial(expressions.render, names=("task", "steps", "batch", "keys"))

DATA: dict[str, Any] = {
    "task": {
        "context": {"items": [1, 2, 3], "n": 5, "s": "ab", "none": None, "deep": {"a": {"b": 1}},
                    "rows": [{"n": 1}, {"n": 2}]},
    },
    "steps": {"a": {"result": {"x": {"y": 1}}}},
}  # fmt: skip


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("plain {text}", "plain {text}"),
        ("{{ task.context.items }}", [1, 2, 3]),
        ("n={{ task.context.n }}", "n=5"),
        ("{{ task.context.n }}", 5),
        ("{{ task.context.n }}{{ task.context.n }}", "55"),
        ("{{ steps.a.result.x.y + 1 }}", 2),
        ("{{ steps['a'].result }}", {"x": {"y": 1}}),
        ("{{ task.context['deep']['a'].b }}", 1),
        ("{{ task.context.missing|default(3) }}", 3),
        ("{{ task.context.none }}", None),
        ("{{ task.context.n > 3 and task.context.s == 'ab' }}", True),
        ("{{ steps.b is defined }}", False),
        ("{{ task.context.items[0] }}", 1),
        ("{{ task.context.items[1:] }}", [2, 3]),
        ("{{ task.context.items|sum + task.context.items|length }}", 9),
        ("{{ task.context.rows|map(attribute='n')|sum }}", 3),
        ("{{ {'a': task.context.n, 'b': [1, (2, 3)]} }}", {"a": 5, "b": [1, [2, 3]]}),
        ("{{ 'x' if steps.a is defined else 'y' }}", "x"),
        ("{{ task.context.s|replace('a', 'b')|upper }}", "BB"),
        ("{{ task.context.items|join('-') }}", "1-2-3"),
        ("{{ task.context.deep|tojson }}", '{"a": {"b": 1}}'),
        ("{{ 7 // 2 }} {{ 7 % 4 }} {{ -task.context.n }}", "3 3 -5"),
        ("{{ 2.567|round(1) }}", 2.6),
        ("{{ '{{ 1 + 1 }}' }}", "{{ 1 + 1 }}"),
    ],
)
def test_expression_has_the_value_of_its_kind(source: str, value: Any) -> None:
    found = read(source).value(DATA)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    "source",
    [
        "{{ 2 ** 8 }}", "{{ range(9) }}", "{{ task.context.s.upper() }}", "{{ 'a' ~ 'b' }}",
        "{% for x in task %}{% endfor %}", "{% set x = 1 %}", "{% if 1 %}{% endif %}",
        "{% macro m() %}{% endmacro %}", "{% include 'x' %}", "{% import 'x' as x %}",
        "{{ foo }}", "{{ steps }}", "{{ steps|length }}", "{{ steps[task.context.s] }}",
        "{{ lipsum }}", "{{ self }}", "{{ cycler }}", "{{ 'a'|uper }}", "{{ 'a'|pprint }}",
        "{{ task.context.items|map('upper') if 1 is callable }}", "{{ 'a'|center(9) }}",
        "{{ 'a' is filter }}", "{{ 1", "{{",
        "{{ task.context|tojson(*task) }}",
        "{{ " + "(" * 1_500 + "1" + ")" * 1_500 + " }}", "{{ " + "1 + " * 300 + "1 }}", "x" * 5_000,
        "{{ " + "-" * 3_000 + "1 }}", "{{ " + "not " * 900 + "1 }}", "{{ " + "[" * 900 + " }}",
    ],
)  # fmt: skip
def test_what_is_not_in_the_language_is_refused_when_it_is_read(source: str) -> None:
    with pytest.raises(InvalidExpression):
        read(source)


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("{{ task.context.missing }}", "there is no 'missing'"),
        ("{{ [task.context.missing] }}", "there is no 'missing'"),
        ("x {{ task.context.missing }}", "there is no 'missing'"),
        ("{{ steps.b.result.x }}", "there is no 'b'"),
        ("{{ task.context.items[7] }}", "there is no '7'"),
        ("{{ task.__class__ }}", "there is no '__class__'"),
        ("{{ ''.__class__ }}", "there is no '__class__'"),
        ("{{ task.context.items.append }}", "there is no 'append'"),
        ("{{ task['items'] }}", "there is no 'items'"),
        ("{{ task.context.s * 5 }}", "takes two numbers"),
        ("{{ [1] * 5 }}", "takes two numbers"),
        ("{{ '%0999999999d' % 3 }}", "takes two numbers"),
        ("{{ 1 / 0 }}", "division by zero"),
        ("{{ 9223372036854775807 * 9223372036854775807 }}", "more than 64 bits"),
        ("{{ 1e308 * 10 }}", "no finite number"),
        ("{{ task.context.s|sum }}", "sum adds numbers only"),
        ("{{ task.context.s < 3 }}", "not supported"),
    ],
)
def test_what_has_no_value_says_why(source: str, told: str) -> None:
    with pytest.raises(CannotEvaluate, match=told) as raised:
        read(source).value(DATA)
    assert source[:40] in str(raised.value)


BIG = {"task": {"context": {"s": "x" * 200_000, "l": list(range(200_000))}}, "steps": {}}


@pytest.mark.parametrize(
    "source",
    [
        "{{ task.context.s + task.context.s }}",
        "{{ task.context.s|replace('x', task.context.s) }}",
        "{{ task.context.l|join(task.context.s) }}",
        "{{ task.context.l + task.context.l }}",
        "{{ task.context.l|sort }}",
        "{{ task.context.s }}" * 40,
    ],
)
def test_what_would_become_too_much_is_stopped_soon(source: str) -> None:
    began = time.process_time()
    with pytest.raises(CannotEvaluate, match=r"more than|at most"):
        read(source).value(BIG)
    assert time.process_time() - began < 2


def test_parameters_together_are_limited_too() -> None:
    with pytest.raises(CannotEvaluate, match="1,048,576"):
        render({str(n): "{{ task.context.s }}" for n in range(10)}, BIG)


LARGE = [[n, []] for n in range(20_000)]
"""Some 3 MiB in memory."""


def test_copies_of_a_large_value_are_refused_at_once_and_take_no_memory() -> None:
    budget = expressions.Budget(seconds=600)  # memory that is traced is slow
    data = {"task": {"context": {"l": LARGE}}}
    tracemalloc.start()
    try:
        with pytest.raises(CannotEvaluate, match="together make more than 1,048,576"):
            render({str(n): "{{ task.context.l }}" for n in range(150)}, data, budget)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2**20


def test_copies_inside_a_list_that_an_expression_makes_count_as_well() -> None:
    data = {"task": {"context": {"l": LARGE}}}
    with pytest.raises(CannotEvaluate, match="together make more than 1,048,576"):
        render(["{{ [task.context.l, task.context.l] }}"] * 150, data)


def test_what_is_only_passed_on_is_not_copied() -> None:
    constant = {"of": ["the", "template"]}
    rendered = render(
        {"whole": "{{ task.context.l }}", "in": "{{ [task.context.l] }}", "constant": constant},
        {"task": {"context": {"l": LARGE}}},
    )
    assert rendered["whole"] is LARGE
    assert rendered["in"][0] is LARGE
    assert rendered["constant"] is constant


@pytest.mark.parametrize(
    "source", ["{{ task.context.l }} of them", "{{ task.context.l|string|length }}",
               "{{ task.context.l|upper }}", "{{ [task.context.l]|join }}"],
)  # fmt: skip
def test_text_of_a_large_value_is_refused_before_it_is_made(source: str) -> None:
    data = {"task": {"context": {"l": [LARGE] * 5}}}
    read(source)
    tracemalloc.start()
    try:
        with pytest.raises(CannotEvaluate, match="more than"):
            read(source).value(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2**20


def test_condition_of_a_step_and_its_parameters_have_one_budget() -> None:
    budget = expressions.Budget()
    data = {"task": {"context": {"s": "x" * 600_000}}}
    render(["{{ task.context.s }}"], data, budget)
    with pytest.raises(CannotEvaluate, match="the values together"):
        render("{{ task.context.s }}", data, budget)


def test_thousands_of_expensive_expressions_end_with_their_processor_time() -> None:
    budget = expressions.Budget(seconds=0.05)
    data = {"task": {"context": {"l": [f"Text {n % 97}" for n in range(10_000)]}}}
    sources = ["{{ task.context.l|sort|length }}"] * 10_000
    with pytest.raises(CannotEvaluate, match=r"more than 0\.05 s of processor time"):
        render(sources, data, budget)


def test_most_expensive_expression_takes_no_time_to_speak_of() -> None:
    data = {"task": {"context": {"l": [f"Text {n % 97}" for n in range(10_000)]}}}
    source = "{{ " + " + ".join(["task.context.l|sort|unique|list|length"] * 20) + " }}"
    began = time.process_time()
    assert read(source).value(data) == 97 * 20
    assert time.process_time() - began < 10  # a second, on a machine that does nothing else


@given(st.text(alphabet="{}%#()[].|_~*+-'\"0a \n", max_size=60))
def test_no_text_makes_another_error_than_ours(source: str) -> None:
    with contextlib.suppress(InvalidExpression, CannotEvaluate):
        read(source).value(DATA)


def test_references_are_known_without_evaluating() -> None:
    expression = read("{{ steps.a.result.x if steps['b'] is defined else task.context.n }}")
    assert expression.steps == {"a", "b"}
    assert expression.names == {"steps", "task"}
    places = dict(expressions.texts({"a": [1, "{{ task }}"], "b": {"c": "plain"}}))
    assert places == {("a", 1): "{{ task }}"}


def test_condition_may_be_bare() -> None:
    assert read("task.context.n > 3", bare=True).value(DATA) is True
    with pytest.raises(InvalidExpression, match="no text around"):
        read("{{ 1 }} and more", bare=True)
