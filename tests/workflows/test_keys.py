"""Keys in templates: a template refers to them, and data cannot."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from orchestrator.access import keys
from orchestrator.core import expressions
from orchestrator.core.expressions import Budget, CannotEvaluate, InvalidExpression
from orchestrator.workflows import engine, task_templates
from orchestrator.workflows.models import Task
from orchestrator.workflows.task_templates import InvalidTemplate
from orchestrator.workflows.task_templates.definitions import EXPRESSION_NAMES
from tests.factories import NOW, make_action
from tests.principals import ROOT
from tests.workflows.play import Play, step, template

read = partial(expressions.read, names=EXPRESSION_NAMES)
render = partial(expressions.render, names=EXPRESSION_NAMES)

STRIPE = {"$key": "billing/stripe"}
DATA: dict[str, Any] = {
    "task": {"id": "T", "context": {"s": "text", "ref": STRIPE, "deep": [{"x": STRIPE}]}},
    "steps": {"a": {"result": {"$text": ["x"]}}},
    "batch": {},
}


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("{{ keys.billing.stripe }}", STRIPE),
        ("{{ keys['billing-eu']['stripe-2'] }}", {"$key": "billing-eu/stripe-2"}),
        ("{{ keys.installation.smtp }}", {"$key": "installation/smtp"}),
        ("Bearer {{ keys.billing.stripe }}", {"$text": ["Bearer ", STRIPE]}),
        (
            "{{ task.id }}-{{ keys.billing.stripe }}-{{ task.context.s }}!",
            {"$text": ["T-", STRIPE, "-text!"]},
        ),
        ("{{ [keys.billing.stripe, 1] }}", [STRIPE, 1]),
        ("{{ {'x': keys.billing.stripe} }}", {"x": STRIPE}),
        ("{{ keys.billing.stripe if task.id == 'T' else keys.a.b }}", STRIPE),
        ("{{ keys.billing.stripe if task.id == 'U' else 'none' }}", "none"),
    ],
)
def test_key_in_an_expression_is_a_reference(source: str, value: Any) -> None:
    assert read(source).value(DATA) == value
    assert render({"p": [source]}, DATA) == {"p": [value]}


@pytest.mark.parametrize(
    "source",
    [
        "{{ keys }}", "{{ keys.billing }}", "{{ keys.a.b.c }}", "{{ keys.a.b|upper }}",
        "{{ keys.a.b|default('x') }}", "{{ keys.a.b + 'x' }}", "{{ 'x' in keys.a.b }}",
        "{{ keys.a.b == 'x' }}", "{{ keys.a.b is string }}", "{{ keys.a.b[0] }}",
        "{{ keys[task.id].b }}", "{{ keys.a[task.id] }}", "{{ 1 if keys.a.b else 2 }}",
        "{{ {keys.a.b: 1} }}", "{{ [keys.a.b]|join }}", "{{ keys.A.b }}", "{{ keys.a['b/c'] }}",
        "{{ not keys.a.b }}", "{{ keys.a.b and 1 }}", "{{ task[keys.a.b] }}", "{{ keys|tojson }}",
    ],
)  # fmt: skip
def test_nothing_can_be_made_of_a_key(source: str) -> None:
    with pytest.raises(InvalidExpression):
        read(source)


def test_condition_cannot_depend_on_a_key() -> None:
    with pytest.raises(InvalidExpression, match="a condition cannot depend on a key"):
        read("keys.billing.stripe", bare=True)


@pytest.mark.parametrize(
    "source",
    [
        "{{ task.context.ref }}",
        "{{ task.context.deep }}",
        "{{ [task.context.ref] }}",
        "{{ {'$key': task.context.s} }}",
        "{{ steps.a.result }}",
        "text {{ task.context.ref }}",
        "{{ task.context.ref|tojson }}",
    ],
)
def test_data_cannot_refer_to_a_key(source: str) -> None:
    with pytest.raises(CannotEvaluate, match="only a template refers to keys"):
        render({"p": source}, DATA, Budget())


def test_reference_that_is_written_out_is_kept_and_the_rest_is_evaluated() -> None:
    written = {"a": STRIPE, "b": {"$text": ["Bearer ", STRIPE]}, "c": "{{ task.id }}"}
    assert render(written, DATA) == written | {"c": "T"}


@pytest.mark.parametrize(
    ("parameters", "where"),
    [
        ({"t": {"$key": "{{ task.context.which }}"}}, "steps.0.parameters.t"),
        ({"t": {"$key": "stripe"}}, "steps.0.parameters.t"),
        ({"t": {"$key": "billing/stripe", "x": 1}}, "steps.0.parameters.t"),
        ({"t": {"$text": ["{{ task.id }}", STRIPE]}}, "steps.0.parameters.t.$text.0"),
        ({"t": "{{ keys.billing|first }}"}, "steps.0.parameters.t"),
    ],
)
def test_wrong_reference_is_a_problem_of_the_template(parameters: Any, where: str) -> None:
    with pytest.raises(InvalidTemplate) as error:
        template(step("pay", parameters=parameters))
    (problem,) = error.value.problems
    assert problem.message.startswith(f"{where}: ")


def test_reference_in_a_context_is_refused_with_its_place(db: None) -> None:
    make_action()
    task_templates.install_templates([template(step("pay"))], now=NOW)
    new = engine.NewTask(namespace="tests", name="tidy", version="1.0.0", context={"a": [STRIPE]})
    with pytest.raises(engine.TaskRefused) as error:
        engine.request(new, requested_by="ada", now=NOW)
    assert [refusal.pointer for refusal in error.value.refusals] == ["/context/a/0"]
    assert not Task.objects.exists()


# --- steps ---------------------------------------------------------------------------------------

SCHEMA = {"type": "object", "properties": {"token": {"type": "string", "secret": True}}}


@pytest.fixture
def pay(db: None, settings: Any, tmp_path: Any) -> None:
    settings.DATA_DIR = tmp_path
    make_action("billing.pay", parameters_schema=SCHEMA)


def create() -> None:
    new = keys.NewKey(reference=keys.Reference("pack", "billing", "stripe"), value="sk_live_1234")
    keys.create(new, by=ROOT, now=NOW)


PAY = step("pay", action="billing.pay", parameters={"token": "{{ keys.billing.stripe }}"},
           retry={"max_attempts": 1})  # fmt: skip


def test_execution_of_a_step_has_the_reference(pay: None) -> None:
    create()
    play = Play(PAY)
    assert play.parameters("pay") == {"token": STRIPE}


def test_step_with_an_unknown_key_is_in_error_and_can_be_repaired(pay: None) -> None:
    play = Play(PAY)
    assert play.step("pay").state == "error"
    error: Any = play.step("pay").error
    assert error["message"] == (
        "/parameters/token: there is no key billing/stripe that billing.pay may get"
    )
    create()
    engine.reset_for_retry(play.step("pay").pk, reason="it is there", actor="ada", now=NOW)
    assert play.parameters("pay") == {"token": STRIPE}
