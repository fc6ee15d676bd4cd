"""Run: an action is found, its schema makes the form, and a refusal stands at its field."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.test import Client
from django.urls import reverse

from orchestrator.console import schema_form
from orchestrator.console.schema_form import Kind
from orchestrator.core import clock
from orchestrator.core.models import Action, Execution, Worker
from tests import commands
from tests.console.costs import looking_alone
from tests.console.test_execution import CANARY
from tests.factories import make_action, make_execution, make_worker
from tests.principals import caller, given, staff

Person = Callable[[str], Client]

SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "required": ["to", "copies"],
    "properties": {
        "to": {"type": "string", "minLength": 2, "description": "Where to."},
        "copies": {"type": "integer", "minimum": 1, "default": 1},
        "scale": {"type": "number"},
        "colour": {"type": "boolean"},
        "paper": {"enum": ["a4", "a3", 7]},
        "pages": {"type": "array", "items": {"type": "string"}},
        "tray": {"type": "object", "properties": {"n": {"type": "integer"}}},
        "pin": {"type": "string", "secret": True},
        "password": {"type": "string"},
    },
}

FILLED = {
    "p:to": "printer 7", "p:copies": "2", "p:scale": "1.5", "p:colour": "true", "p:paper": '"a3"',
    "p:pages": "one\r\ntwo\r\n", "p:tray": '{"n": 3}', "p:pin": CANARY,
}  # fmt: skip

GIVEN = {
    "to": "printer 7", "copies": 2, "scale": 1.5, "colour": True, "paper": "a3",
    "pages": ["one", "two"], "tray": {"n": 3}, "pin": CANARY,
}  # fmt: skip


@pytest.fixture
def printing() -> Action:
    make_worker("w1", now=clock.now(), labels={"zone": "a"})
    return make_action("shop.print", parameters_schema=SCHEMA, description="Prints pages.")


def form(client: Client, ref: str = "shop.print", *, answer: int = 200, **query: Any) -> str:
    response = client.get(reverse("console:run-action", args=[ref]), query)
    assert response.status_code == answer
    return unescape(response.content.decode())


def send(client: Client, ref: str = "shop.print", query: str = "", **typed: str) -> Any:
    url = reverse("console:run-action", args=[ref])
    return client.post(f"{url}{query}", {"token": "t"} | typed)


def refusals(response: Any) -> dict[str, list[str]]:
    """What was refused, by the name of the input below which it stands."""
    assert response.status_code == 200
    fields = unescape(response.content.decode()).split('<div class="field">')[1:]
    found = {}
    for each in fields:
        said = re.findall(r'<p class="refusal">([^<]*)</p>', each)
        if said:
            name = re.search(r' name="([^"]*)"', each)
            assert name is not None
            found[name[1]] = said
    return found


# --- finding -------------------------------------------------------------------------------------


def test_actions_are_found_by_name_and_by_what_they_do(
    admin_client: Client, printing: Action
) -> None:
    make_action("core.echo")
    for q in ("print", "Prints pages", "SHOP"):
        found = admin_client.get("/console/run", {"q": q}).content.decode()
        assert "/console/run/shop.print" in found
        assert "/console/run/core.echo" not in found
    assert b"No action that you may run" in admin_client.get("/console/run?q=zzz").content


def test_actions_out_of_reach_are_neither_listed_nor_run(person: Person, printing: Action) -> None:
    make_action("core.echo")
    shopkeeper = staff("shopkeeper", given("operator", packs=["core"]))
    assert b"shop.print" not in shopkeeper.get("/console/run").content
    assert "executions.run" in form(shopkeeper, answer=403)
    assert send(shopkeeper, **FILLED).status_code == 403
    for role in ("", "viewer"):
        assert person(role).get("/console/run").status_code == 403
        assert not Execution.objects.exists()


def test_an_action_that_is_none_is_said_to_be_none(admin_client: Client, printing: Action) -> None:
    assert "did you mean 'shop.print'" in form(admin_client, "shop.prnt", answer=404)
    assert send(admin_client, "shop.prnt").status_code == 404


# --- the form ------------------------------------------------------------------------------------


def test_each_property_has_the_control_of_its_kind() -> None:
    kinds = {each.name: each.kind for each in schema_form.fields(SCHEMA)}
    assert kinds == {
        "to": Kind.TEXT, "copies": Kind.NUMBER, "scale": Kind.NUMBER, "colour": Kind.CHOICE,
        "paper": Kind.CHOICE, "pages": Kind.TEXTS, "tray": Kind.JSON, "pin": Kind.SECRET,
        "password": Kind.SECRET,
    }  # fmt: skip


@pytest.mark.parametrize(
    "schema",
    [{}, True, False, None, {"properties": []}, {"properties": {"a": True, "": 7, "b": None}},
     {"type": ["object"], "required": "x", "properties": {"a": {"type": ["string", "null"]}}},
     {"properties": {"a": {"enum": []}, "b": {"const": None}, "c": {"$ref": "#/nowhere"}}}],
)  # fmt: skip
def test_a_form_is_made_of_any_schema(schema: Any) -> None:
    found = schema_form.fields(schema)
    schema_form.fill(found, {"a": [1], "z": {"b": None}})
    assert schema_form.read(found, {each.input: each.typed for each in found}) is not None


def _type(schema: dict[str, Any]) -> str:
    named = schema["type"]
    return str(named[0] if isinstance(named, list) else named)


@pytest.mark.parametrize("path", sorted(Path("packs").glob("*/actions/*.yaml")), ids=str)
def test_every_action_of_core_and_examples_has_a_form_that_keeps_what_it_is_given(
    path: Path,
) -> None:
    schema = yaml.safe_load(path.read_text()).get("parameters", {})
    samples = {"string": "x y", "number": 1.5, "integer": 3, "boolean": False, "object": {"a": 1}}
    wanted = {}
    for name, each in schema.get("properties", {}).items():
        wanted[name] = each["enum"][0] if "enum" in each else samples.get(_type(each), ["a", "b"])
    if schema.get("additionalProperties") is not False:
        wanted |= {"more": {"deep": [1, None, "x"]}}
    found = schema_form.fields(schema)
    schema_form.fill(found, wanted)
    again = schema_form.read(found, {each.input: each.typed for each in found})
    assert again == wanted
    assert not any(each.refusals for each in found)


def test_what_is_typed_is_what_is_run(admin_client: Client, printing: Action) -> None:
    more = {"worker": "w1", "labels": "zone=a", "queue": "default", "priority": "-3",
            "timeout_seconds": "12.5", "queue_ttl_ms": "9000", "deadline_seconds": "100",
            "scheduled_timeout_seconds": "9", "correlation_id": "batch-1"}  # fmt: skip
    answer = send(admin_client, **FILLED, **more)
    execution = Execution.objects.get()
    assert answer["Location"] == reverse("console:execution", args=[execution.pk])
    assert execution.parameters == GIVEN
    assert execution.pinned_worker == Worker.objects.get()
    assert execution.requested_by == "user:admin"
    assert (execution.priority, execution.timeout_seconds, execution.queue_ttl_ms) == (
        -3, 12.5, 9000,
    )  # fmt: skip
    assert execution.worker_selector == {"zone": "a"}
    assert execution.correlation_id == "batch-1"


@pytest.mark.parametrize(
    ("name", "typed", "said"),
    [
        ("p:to", "", "the property 'to'"),
        ("p:to", "x", "expected at least 2"),
        ("p:copies", "0", "expected at least 1"),
        ("p:copies", "two", "found 'two'"),
        ("p:copies", "1.5", "found 1.5"),
        ("p:copies", "9" * 600, "found"),
        ("p:scale", "NaN", "found 'NaN'"),
        ("p:scale", "1e999", "beyond a double's range"),
        ("p:paper", '"a5"', "found 'a5'"),
        ("p:paper", "a5", "expected JSON"),
        ("p:colour", "7", "found 7"),
        ("p:pages", "[1]", "/0: expected"),
        ("p:tray", '{"n": "x"}', "/n: expected"),
        ("p:tray", "{", "expected JSON: line 1"),
        ("p:tray", "NaN", "not a JSON number"),
        ("p:tray", '{"n": "***"}', "stands for a secret"),
        ("worker", "w11", "no worker is called 'w11', did you mean 'w1'?"),
        ("labels", "zone", "expected key=value"),
        ("labels", "=b", "expected"),
        ("queue", "defualt", "defualt"),
        ("priority", "1000", "expected -100 to 100"),
        ("priority", "high", "expected a whole number"),
        ("timeout_seconds", "0", "expected 0.001"),
        ("timeout_seconds", "inf", "expected a number"),
        ("queue_ttl_ms", "1.5", "expected a whole number"),
        ("deadline_seconds", "1e99", "expected 0.001"),
        ("correlation_id", "x" * 101, "expected 1 to 100 characters"),
    ],
)
def test_what_is_refused_is_refused_at_its_field_and_keeps_what_was_typed(
    admin_client: Client, printing: Action, name: str, typed: str, said: str
) -> None:
    response = send(admin_client, **FILLED | {name: typed})
    found = refusals(response)
    assert list(found) == [name], found
    assert said in found[name][0]
    text = unescape(response.content.decode())
    assert 'aria-invalid="true"' in text
    for kept in (
        "printer 7" if name != "p:to" else "1.5",
        "one\ntwo" if name != "p:pages" else "a3",
    ):
        assert kept in text
    assert not Execution.objects.exists()


def test_a_secret_is_never_shown_again(admin_client: Client, printing: Action) -> None:
    nested = json.dumps({"n": 1, "password": CANARY})
    for typed in ({"p:copies": "0"}, {"p:tray": nested, "preview": "yes"},
                  {"p:tray": f'{{"password": "{CANARY}"', "preview": "yes"}):  # fmt: skip
        response = send(admin_client, **FILLED | {"p:password": CANARY} | typed)
        assert response.status_code == 200
        assert CANARY not in response.content.decode()
    assert not Execution.objects.exists()


def test_default_of_a_secret_parameter_is_shown_nowhere(admin_client: Client) -> None:
    pin = {"type": "integer", "secret": True, "default": 47114711}
    rack = {"$ref": "#/$defs/rack", "default": {"code": 47114711}}
    action = make_action(
        "shop.open",
        parameters_schema={
            "properties": {"pin": pin, "rack": rack, "size": {"default": 3}},
            "$defs": {"rack": {"properties": {"code": {"secret": True}}}},
        },
    )
    *others, filled = (
        admin_client.get(reverse(name, args=[key])).content.decode()
        for name, key in (
            ("console:action", action.ref),
            ("console:run-action", action.ref),
            ("admin:orchestrator_action_change", action.pk),
            ("admin:orchestrator_action_run", action.pk),
        )
    )
    assert ["47114711" in page for page in (*others, filled)] == [False] * 4
    assert ">{&quot;size&quot;: 3}<" in filled
    shown = caller("one", given("viewer")).get("/actions/shop.open").json()
    defaults = {
        name: each["default"] for name, each in shown["parameters_schema"]["properties"].items()
    }
    assert defaults == {"pin": "***", "rack": {"code": "***"}, "size": 3}


def test_a_form_that_is_sent_twice_makes_one_execution_and_a_changed_one_another(
    admin_client: Client, printing: Action
) -> None:
    first, second = (send(admin_client, **FILLED)["Location"] for _ in range(2))
    assert first == second
    assert send(admin_client, **FILLED | {"p:copies": "3"})["Location"] != first
    assert send(admin_client, **FILLED | {"priority": "3"})["Location"] != first
    key = Execution.objects.order_by("pk")[0].idempotency_key
    assert key is not None
    assert CANARY not in key


def test_a_dangerous_action_says_what_it_needs(person: Person) -> None:
    make_action("core.shell", dangerous=True, parameters_schema={"type": "object"})
    operator = person("operator")
    assert "actions.run_any_command, which you do not have" in form(operator, "core.shell")
    assert send(operator, "core.shell").status_code == 403
    assert not Execution.objects.exists()


# --- with changes --------------------------------------------------------------------------------


def test_run_with_changes_is_filled_but_for_secrets_and_linked(
    admin_client: Client, printing: Action, worker: Worker
) -> None:
    origin = make_execution(
        "failed", action=printing, worker=worker, now=clock.now(), parameters=GIVEN, priority=5,
        worker_selector={"zone": "a"}, timeout_seconds=604800.5,
    )  # fmt: skip
    query: dict[str, Any] = {"from": origin.pk}
    text = form(admin_client, **query)
    for kept in (">\nprinter 7<", 'value="2"', 'value="1.5"', '<option selected>"a3"',
                 "\none\ntwo<",
                 '"n": 3', 'value="5"', ">\nzone=a<", 'value="604800.5"'):  # fmt: skip
        assert kept in text, kept
    assert CANARY not in text
    answer = send(admin_client, query=f"?from={origin.pk}", **FILLED | {"p:copies": "4"})
    new = Execution.objects.exclude(pk=origin.pk).get()
    assert answer["Location"].endswith(str(new.pk))
    assert new.parameters == GIVEN | {"copies": 4}
    origin_page = admin_client.get(reverse("console:execution", args=[origin.pk]))
    assert str(new.pk) in origin_page.content.decode()


def test_without_payloads_nothing_of_them_is_filled_in(
    person: Person, printing: Action, worker: Worker
) -> None:
    origin = make_execution("failed", action=printing, worker=worker, now=clock.now(),
                            parameters=GIVEN)  # fmt: skip
    query: dict[str, Any] = {"from": origin.pk}
    text = form(person("operator"), **query)
    assert "printer 7" not in text


def test_an_origin_that_is_not_there_is_said_to_be_none(
    admin_client: Client, printing: Action
) -> None:
    for id in ("x", "00000000-0000-7000-8000-000000000000"):
        query: dict[str, Any] = {"from": id}
        assert "No execution has the id" in form(admin_client, answer=404, **query)


# --- the same elsewhere --------------------------------------------------------------------------


def shown_commands(text: str) -> list[str]:
    return [
        unescape(each) for each in re.findall(r'role="group">((?:\./manage|curl)[^<]*)</pre>', text)
    ]


def test_the_command_and_the_curl_do_the_same(admin_client: Client, printing: Action) -> None:
    typed = {**FILLED, "p:to": "o'neil \"7\" $HOME `x`", "p:pin": "", "worker": "w1",
             "labels": "zone=a", "priority": "-3", "timeout_seconds": "12.5"}  # fmt: skip
    response = send(admin_client, **typed, preview="yes")
    assert not Execution.objects.exists()
    command, curl = shown_commands(response.content.decode())
    run, *_ = commands.of("execution")
    name, verb, *words = shlex.split(command)[1:]
    assert (name, verb) == ("execution", "submit")
    run(verb, *words)
    *_, data = shlex.split(curl)
    assert "Bearer $TOKEN" in curl
    url = shlex.split(curl)[2]
    assert url == "http://testserver/api/v1/executions"
    other = caller("other", given("admin"))
    assert other.post("/executions", json.loads(data)).status_code == 201
    send(admin_client, **typed)
    same = [
        (each.action_ref, each.parameters, each.pinned_worker_id, each.worker_selector,
         each.priority, each.timeout_seconds)
        for each in Execution.objects.all()
    ]  # fmt: skip
    assert len(same) == 3
    assert same[0] == same[1] == same[2]


def test_secrets_are_in_no_command(admin_client: Client, printing: Action) -> None:
    response = send(admin_client, **FILLED, preview="yes")
    for each in shown_commands(response.content.decode()):
        assert CANARY not in each
        assert '"pin": "***"' in each


def test_a_form_takes_few_queries(admin_client: Client, printing: Action) -> None:
    form(admin_client)
    with looking_alone():
        form(admin_client)
