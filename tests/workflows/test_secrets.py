"""A secret of a task is none of its page's alone: no other page, row or entry gives it away."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from orchestrator.core import executions
from orchestrator.core.models import DLQEntry, Execution
from orchestrator.workflows.models import Step
from tests import commands
from tests.core.api.client import Caller
from tests.factories import make_template
from tests.workflows.play import Play, step

pytestmark = pytest.mark.django_db

CARD = "4111-1111-1111-1111"
PIN = "Xk7Qv-93jdZ-p8w4"
INPUT = {"type": "object", "properties": {"card": {"type": "string", "secret": True}}}
PAY = step(
    "pay",
    parameters={"note": "card {{ task.context.card }}"},
    retry={"max_attempts": 1},
    result_schema={"properties": {"code": {"type": "integer", "secret": True}}},
)


@pytest.fixture
def play() -> Play:
    return Play(PAY, context={"card": CARD}, input_schema=INPUT)


def execution(play: Play) -> Execution:
    found = play.step("pay").execution
    assert found is not None
    return found


def error_of(play: Play) -> Any:
    error = play.step("pay").error
    assert error is not None
    return error


def faces(play: Play, caller: Caller, admin_client: Client) -> dict[str, str]:
    """All that shows the execution of the step, the step, the task, and the entry about it."""
    id, pay, task = str(execution(play).pk), str(play.step("pay").pk), str(play.id)
    entries = [str(entry) for entry in DLQEntry.objects.values_list("dlq_entry_uuid", flat=True)]

    def page(name: str, id: Any) -> str:
        return admin_client.get(reverse(f"admin:{name}_change", args=[id])).content.decode()

    shown = {
        "api execution": caller.get(f"/executions/{id}").content.decode(),
        "api step": caller.get(f"/tasks/{task}/workflow_steps/{pay}").content.decode(),
        "api steps": caller.get(f"/tasks/{task}/workflow_steps").content.decode(),
        "api task": caller.get(f"/tasks/{task}").content.decode(),
        "admin execution": page("orchestrator_execution", id),
        "admin step": page("workflows_step", pay),
        "admin task": page("workflows_task", task),
        "terminal execution": commands.printed("execution", "show", id),
        "json execution": commands.printed("execution", "show", id, "--json"),
        "terminal step": commands.printed("task", "step", task, "pay"),
        "terminal task": commands.printed("task", "show", task),
    }
    for entry in entries:
        shown[f"api entry {entry}"] = caller.get(f"/dlq/entry/{entry}").content.decode()
        shown[f"terminal entry {entry}"] = commands.printed("dlq", "show", entry)
    for number, row in enumerate(DLQEntry.objects.all()):
        shown[f"admin entry {number}"] = page("orchestrator_dlqentry", row.pk)
    return shown


def test_value_of_a_context_is_masked_in_what_it_was_passed_on_to(
    play: Play, caller: Caller, admin_client: Client
) -> None:
    play.end("pay", result={"echo": f"paid with {CARD}", "code": 7}, advance=False)
    shown = faces(play, caller, admin_client)
    assert not [face for face, text in shown.items() if CARD in text]
    assert "card ***" in shown["api execution"]
    assert "paid with ***" in shown["terminal execution"]
    assert execution(play).parameters == {"note": f"card {CARD}"}


def test_result_that_its_schema_marks_is_hidden_on_the_page_of_the_execution_too(
    play: Play, caller: Caller, admin_client: Client
) -> None:
    play.end("pay", result={"code": 47114711, "fine": "open"})
    assert play.step("pay").result == {"code": 47114711, "fine": "open"}
    shown = faces(play, caller, admin_client)
    assert not [face for face, text in shown.items() if "47114711" in text]
    assert '"fine":"open"' in shown["api execution"]


def test_secret_result_that_does_not_fit_is_stored_and_shown_without_a_character_of_it(
    play: Play, caller: Caller, admin_client: Client
) -> None:
    play.end("pay", result={"code": PIN})
    pay = play.step("pay")
    assert (pay.state, pay.result) == ("error", None)
    assert error_of(play)["message"] == (
        "the result does not fit result_schema: /code: expected integer, found a value that is "
        "secret"
    )
    assert play.state == "blocked_by_failures"
    assert DLQEntry.objects.count() == 1
    stored = json.dumps([*Step.objects.values(), *DLQEntry.objects.values()], default=str)
    for part in (PIN, PIN[:6], PIN[-6:]):
        assert part not in stored
        shown = faces(play, caller, admin_client)
        assert not [face for face, text in shown.items() if part in text]


def test_message_of_a_failed_step_is_stored_without_the_values_of_its_context(
    play: Play, caller: Caller, admin_client: Client
) -> None:
    play.fail("pay", message=f"the card {CARD} was declined")
    assert error_of(play)["message"] == "the card *** was declined"
    shown = faces(play, caller, admin_client)
    assert not [face for face, text in shown.items() if CARD in text]


def test_snapshot_of_an_execution_has_no_value_of_the_context(play: Play) -> None:
    (subject,) = executions.subjects([execution(play)])
    assert subject.snapshot["parameters"] == {"note": "card ***"}


def test_step_that_cannot_be_requested_does_not_quote_the_context() -> None:
    odd = step("odd", parameters={"n": "{{ task.context.card|int + task.context.card }}"})
    play = Play(odd, context={"card": CARD}, input_schema=INPUT)
    assert play.step("odd").state == "error"
    assert CARD not in json.dumps(play.step("odd").error)


@pytest.mark.parametrize("face", ["api", "json", "admin"])
def test_template_is_shown_without_what_a_name_marks(
    face: str, caller: Caller, admin_client: Client
) -> None:
    parameters = {
        "password": "hunter2-hunter2",
        "token": "{{ keys.billing.stripe }}",
        "api_key": {"$key": "billing/stripe"},
        "secret": "before {{ task.id }}",
        "open": ["shown"],
    }
    made = make_template(
        definition={
            "name": "tidy", "namespace_name": "tests", "version": "1.0.0",
            "input_schema": {"properties": {"password": {"default": "of-the-schema"}}},
            "metadata": {"token": "of-the-metadata"},
            "steps": [
                {
                    "name": "pay", "action": "core.echo", "parameters": parameters,
                    "result_schema": {"properties": {"pin": {"secret": True, "const": "4-7-1-1"}}},
                }
            ],
            "environments": {
                "test": {"steps": {"pay": {"parameters": {"password": "of-the-test"}}}},
            },
        }
    )  # fmt: skip
    page = reverse("admin:workflows_tasktemplate_change", args=[made.pk])
    text = {
        "api": lambda: caller.get("/templates/tests/tidy/1.0.0").content.decode(),
        "json": lambda: commands.printed("template", "show", "tests/tidy/1.0.0", "--json"),
        "admin": lambda: admin_client.get(page).content.decode(),
    }[face]()
    for secret in (
        "hunter2",
        "of-the-metadata",
        "of-the-test",
        "of-the-schema",
        "4-7-1-1",
        "before {{",
    ):
        assert secret not in text
    for shown in ("{{ keys.billing.stripe }}", "billing/stripe", "shown", "input_schema"):
        assert shown in text
    assert made.definition["steps"][0]["parameters"] == parameters


def test_new_execution_asks_no_app_for_secrets(
    caller: Caller, play: Play, django_assert_num_queries: Any, still_clock: None
) -> None:
    body = {"action_ref": "core.echo"}
    caller.post("/executions", body)
    with django_assert_num_queries(3):  # the token, the row, and its event in the audit
        caller.post("/executions", body)
