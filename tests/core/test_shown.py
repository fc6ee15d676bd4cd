"""One description of an execution: all faces say the same, and none of them a secret."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client
from django.urls import reverse

from orchestrator.core import clock, words
from orchestrator.core.models import Execution
from orchestrator.core.shown import executions as shown
from orchestrator.core.states import ExecutionStatus
from tests.core.api.client import Caller
from tests.core.api.conftest import caller, token  # noqa: F401 - fixtures
from tests.factories import make_action, make_execution

pytestmark = pytest.mark.django_db

SECRETS = ("4711-pin", "hidden-key", "s3cret", "topsecret")


@pytest.fixture
def execution() -> Execution:
    schema = {"properties": {"pin": {"type": "string", "secret": True}}}
    return make_execution(
        ExecutionStatus.COMPLETED,
        action=make_action("core.pay", parameters_schema=schema),
        parameters={"pin": "4711-pin", "api_key": "hidden-key", "amount": 5},
        result={"url": "https://ada:s3cret@example.org", "token": "topsecret", "paid": True},
        now=clock.now(),
    )


def command(*arguments: str) -> str:
    out = io.StringIO()
    call_command("execution", *arguments, stdout=out)
    return out.getvalue()


@pytest.mark.parametrize("face", ["api", "json", "terminal", "admin"])
def test_no_face_shows_a_secret(
    face: str,
    execution: Execution,
    caller: Caller,  # noqa: F811
    admin_client: Client,
) -> None:
    id = str(execution.pk)
    page = reverse("admin:orchestrator_execution_change", args=[id])
    text = {
        "api": lambda: caller.get(f"/executions/{id}").content.decode(),
        "json": lambda: command("show", id, "--json"),
        "terminal": lambda: command("show", id),
        "admin": lambda: admin_client.get(page).content.decode(),
    }[face]()
    assert not [secret for secret in SECRETS if secret in text]
    assert "***" in text
    assert "paid" in text


def test_request_is_answered_without_its_secrets(caller: Caller) -> None:  # noqa: F811
    make_action("core.pay", parameters_schema={"properties": {"pin": {"secret": True}}})
    body = {"action_ref": "core.pay", "parameters": {"pin": "4711-pin"}}
    answer = caller.post("/executions", body)
    assert answer.status_code == 201
    assert answer.json()["parameters"] == {"pin": "***"}
    assert Execution.objects.get().parameters == {"pin": "4711-pin"}


def test_api_and_json_say_the_same(execution: Execution, caller: Caller) -> None:  # noqa: F811
    id = str(execution.pk)
    assert json.loads(command("show", id, "--json")) == caller.get(f"/executions/{id}").json()


def test_terminal_and_admin_say_the_same_facts(execution: Execution, admin_client: Client) -> None:
    now = clock.now()
    facts: list[Any] = [
        *shown.situation(execution, now),
        *shown.due(execution, now),
        *shown.times(execution, now),
        *shown.request(execution),
    ]
    page = admin_client.get(reverse("admin:orchestrator_execution_change", args=[execution.pk]))
    for text in (command("show", str(execution.pk)), page.content.decode()):
        assert not [name for name, _ in facts if name not in text]


def test_each_state_of_each_app_has_the_colour_that_stands_beside_it() -> None:
    assert words.kind_of("running") is words.Kind.PRIMARY
    assert words.kind_of("blocked_by_failures") is words.Kind.DANGER
    assert words.kind_of("revoked") is words.Kind.DANGER
    assert words.kind_of("nobody has heard of it") is words.Kind.PLAIN
