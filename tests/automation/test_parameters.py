"""The parameters that a rule gives to its action."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.automation import parameters
from orchestrator.automation.parameters import InvalidParameters, Known

KNOWN = Known(
    trigger={"host": "web1", "level": 4, "tags": ["a", "b"], "deep": {"x": None}, "n": 2.5},
    event={"id": "E", "depth": 1},
    rule={"ref": "ops.restart"},
    pack={"ref": "ops", "config": {"region": "eu"}},
)


@pytest.mark.parametrize(
    ("given", "rendered"),
    [
        ("{{ trigger.level }}", 4),
        ("{{ trigger.n }}", 2.5),
        ("{{ trigger.tags }}", ["a", "b"]),
        ("{{ trigger.deep }}", {"x": None}),
        ("{{ trigger.deep.x }}", None),
        ("{{ trigger.level > 3 }}", True),
        ("level {{ trigger.level }}", "level 4"),
        ("{{ rule.ref }} on {{ trigger.host }}", "ops.restart on web1"),
        ("{{ pack.config.region }}", "eu"),
        ("{{ event.depth + 1 }}", 2),
        ("{{ trigger.none|default('x') }}", "x"),
        ("plain {x}", "plain {x}"),
        (7, 7),
        ({"a": [{"b": "{{ trigger.host }}"}]}, {"a": [{"b": "web1"}]}),
        ("{{ keys.ops.token }}", {"$key": "ops/token"}),
        ("Bearer {{ keys.ops.token }}", {"$text": ["Bearer ", {"$key": "ops/token"}]}),
        ({"$key": "ops/token"}, {"$key": "ops/token"}),
    ],
)
def test_expression_keeps_the_type_of_its_value(given: Any, rendered: Any) -> None:
    assert not parameters.check({"p": given})
    assert parameters.render({"p": given}, KNOWN) == {"p": rendered}


def test_every_name_without_a_value_is_named_with_its_place() -> None:
    given = {
        "a": ["x", "{{ trigger.hots }}"],
        "b": {"c d": "{{ pack.config.zone.name }}"},
        "fine": "{{ trigger.host }}",
        "z": "{{ 1 / (trigger.level - 4) }}",
    }
    with pytest.raises(InvalidParameters) as refused:
        parameters.render(given, KNOWN)
    assert [str(problem) for problem in refused.value.problems] == [
        "a[1]: {{ trigger.hots }}: there is no 'hots'",
        "b['c d']: {{ pack.config.zone.name }}: there is no 'zone'",
        "z: {{ 1 / (trigger.level - 4) }}: division by zero",
    ]


def test_what_an_event_says_is_never_evaluated() -> None:
    known = Known(trigger={"t": "{{ keys.ops.token }}"}, event={}, rule={}, pack={})
    assert parameters.render({"p": "{{ trigger.t }}"}, known) == {"p": "{{ keys.ops.token }}"}


def test_event_cannot_refer_to_a_key() -> None:
    known = Known(trigger={"t": {"$key": "ops/token"}}, event={}, rule={}, pack={})
    with pytest.raises(InvalidParameters, match="only a template refers to keys"):
        parameters.render({"p": "{{ trigger }}"}, known)


def test_parameters_that_make_too_much_are_refused() -> None:
    known = Known(trigger={"t": "x" * 100_000}, event={}, rule={}, pack={})
    with pytest.raises(InvalidParameters, match="the values together make more than 1,048,576"):
        parameters.render({str(n): "{{ trigger.t }}" for n in range(20)}, known)


@pytest.mark.parametrize(
    ("given", "problems"),
    [
        ([], ["expected a mapping of parameters, found an array of 0"]),
        ({"a": "{{ triger.x }}"},
         ["a: expected trigger, event, rule, pack, keys or a text in quotes, found 'triger'"]),
        ({"a": "{{ trigger.x", "b": ["{{ x() }}"]},
         ["a: unexpected end of template, expected 'end of print statement'.",
          "b[0]: call is not allowed in expressions"]),
        ({"a": "{{ keys.ops.token|upper }}"},
         ["a: a key may only be put somewhere, as in {{ keys.billing.stripe }}: no filter, test or "
          "operator takes it"]),
        ({"a": {"$key": "x"}},
         ['a: expected {"$key": ...} with an owner and a name of a-z, 0-9, _ and -, such as '
          "billing/stripe, and nothing beside it"]),
        ({"a": {"$text": ["{{ trigger.x }}", {"$key": "a/b"}]}},
         ["a['$text'][0]: expected plain text here, found '{{ trigger.x }}'"]),
    ],
)  # fmt: skip
def test_all_problems_are_found_before_there_is_an_event(given: Any, problems: list[str]) -> None:
    assert [str(problem) for problem in parameters.check(given)] == problems
