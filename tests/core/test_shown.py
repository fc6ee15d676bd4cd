"""One description of an execution: all faces say the same, and none of them a secret."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from orchestrator.core import clock, words
from orchestrator.core.executions import subjects
from orchestrator.core.models import Execution
from orchestrator.core.shown import executions as shown
from orchestrator.core.shown import investigations
from orchestrator.core.states import ExecutionStatus
from orchestrator.workflows import snapshots
from orchestrator.workflows.states import StepState
from tests import commands
from tests.core.api.client import Caller
from tests.factories import NOW, make_action, make_dlq_entry, make_execution, make_step
from tests.principals import ROOT, given, principal

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


@pytest.mark.parametrize("face", ["api", "json", "terminal", "admin"])
def test_no_face_shows_a_secret(
    face: str,
    execution: Execution,
    caller: Caller,
    admin_client: Client,
) -> None:
    id = str(execution.pk)
    page = reverse("admin:orchestrator_execution_change", args=[id])
    text = {
        "api": lambda: caller.get(f"/executions/{id}").content.decode(),
        "json": lambda: commands.printed("execution", "show", id, "--json"),
        "terminal": lambda: commands.printed("execution", "show", id),
        "admin": lambda: admin_client.get(page).content.decode(),
    }[face]()
    assert not [secret for secret in SECRETS if secret in text]
    assert "***" in text
    assert "paid" in text


@pytest.mark.parametrize("face", ["api", "json", "list", "terminal", "admin"])
def test_no_face_shows_the_value_of_a_name_in_a_message(
    face: str, caller: Caller, admin_client: Client
) -> None:
    execution = make_execution(
        "failed", reason="action_failed", result={"message": "login failed: password=s3cret"},
        now=clock.now(),
    )  # fmt: skip
    id = str(execution.pk)
    page = reverse("admin:orchestrator_execution_change", args=[id])
    text = {
        "api": lambda: caller.get(f"/executions/{id}").content.decode(),
        "json": lambda: commands.printed("execution", "show", id, "--json"),
        "list": lambda: commands.printed("execution", "list", "--json"),
        "terminal": lambda: commands.printed("execution", "show", id),
        "admin": lambda: admin_client.get(page).content.decode(),
    }[face]()
    assert "s3cret" not in text
    assert face == "list" or "password=***" in text


def test_what_completed_with_a_message_is_shown_as_it_is() -> None:
    execution = make_execution("completed", reason="succeeded", result={"message": "token: none"})
    assert shown.result(execution, seen_by=ROOT) == {"message": "token: none"}


@pytest.mark.parametrize(("status", "is_said"), [("completed", False), ("failed", True)])
def test_message_of_a_situation_says_what_went_wrong(status: str, is_said: bool) -> None:
    reason = {"completed": "succeeded", "failed": "action_failed"}[status]
    execution = make_execution(status, reason=reason, result={"message": "hello"})
    facts = dict(shown.situation(execution, NOW, seen_by=ROOT))
    assert facts.get("Message") == ("hello" if is_said else None)


def test_request_is_answered_without_its_secrets(caller: Caller) -> None:
    make_action("core.pay", parameters_schema={"properties": {"pin": {"secret": True}}})
    body = {"action_ref": "core.pay", "parameters": {"pin": "4711-pin"}}
    answer = caller.post("/executions", body)
    assert answer.status_code == 201
    assert answer.json()["parameters"] == {"pin": "***"}
    assert Execution.objects.get().parameters == {"pin": "4711-pin"}


def test_api_and_json_say_the_same(execution: Execution, caller: Caller) -> None:
    id = str(execution.pk)
    assert commands.document("execution", "show", id) == caller.get(f"/executions/{id}").json()


def test_terminal_and_admin_say_the_same_facts(execution: Execution, admin_client: Client) -> None:
    now = clock.now()
    facts: list[Any] = [
        *shown.situation(execution, now, seen_by=ROOT),
        *shown.due(execution, now),
        *shown.times(execution, now),
        *shown.request(execution),
    ]
    page = admin_client.get(reverse("admin:orchestrator_execution_change", args=[execution.pk]))
    for text in (commands.printed("execution", "show", str(execution.pk)), page.content.decode()):
        assert not [name for name, _ in facts if name not in text]


@pytest.mark.parametrize("face", ["api", "admin"])
def test_options_of_an_action_are_shown_without_their_secrets(
    face: str, caller: Caller, admin_client: Client
) -> None:
    options = {
        "env": {"STRIPE": "sk_live_env", "MODE": "fast"},
        "headers": {"authorization": "Bearer sk_live_header"},
        "query": {"api_key": "sk_live_query", "page": "two"},
        "method": "PATCH",
    }
    action = make_action("core.pay", runtime="http", runtime_options=options)
    page = reverse("admin:orchestrator_action_change", args=[action.pk])
    text = {
        "api": lambda: caller.get("/actions/core.pay").content.decode(),
        "admin": lambda: admin_client.get(page).content.decode(),
    }[face]()
    for secret in ("sk_live_header", "sk_live_query"):
        assert secret not in text
    for known in ("STRIPE", "authorization", "PATCH", "two"):
        assert known in text
    action.refresh_from_db()
    assert action.runtime_options == options


@pytest.mark.parametrize("face", ["api", "json", "terminal", "admin"])
@pytest.mark.parametrize(
    "body", [b'{"token": "hunter2-hunter2", "n": 1}', b"x password=hunter2-hunter2 n"]
)
def test_dead_letter_is_shown_without_its_secrets(
    face: str, body: bytes, caller: Caller, admin_client: Client
) -> None:
    entry = make_dlq_entry(
        raw_body=body,
        fingerprint="f",
        headers={"api_key": "hunter2-header", "id": "shown-header"},
        x_death=[{"reason": "expired", "token": "hunter2-death", "count": 1}],
        snapshot={"password": "hunter2-snapshot", "id": "shown-snapshot"},
        metadata={"secret": "hunter2-metadata", "ticket": "shown-ticket"},
    )
    id = str(entry.dlq_entry_uuid)
    page = reverse("admin:orchestrator_dlqentry_change", args=[entry.pk])
    text = {
        "api": lambda: caller.get(f"/dlq/entry/{id}").content.decode(),
        "json": lambda: commands.printed("dlq", "show", id, "--json"),
        "terminal": lambda: commands.printed("dlq", "show", id),
        "admin": lambda: admin_client.get(page).content.decode(),
    }[face]()
    encoded = base64.b64encode(b"hunter2").decode()[:8]
    hexed = " ".join(f"{byte:02x}" for byte in b"hunter2")
    for secret in ("hunter2", encoded, hexed):
        assert secret not in text
    for known in ("shown-header", "shown-snapshot", "shown-ticket"):
        assert known in text


def test_body_without_a_secret_is_shown_byte_by_byte() -> None:
    for body in (b"\xff\xfe\0 password", b'{ "n" : 1 }', b""):
        assert investigations.body(make_dlq_entry(raw_body=body), seen_by=ROOT) == body
    assert investigations.body(make_dlq_entry(), seen_by=ROOT) is None


def test_each_state_of_each_app_has_the_colour_that_stands_beside_it() -> None:
    assert words.kind_of("running") is words.Kind.PRIMARY
    assert words.kind_of("blocked_by_failures") is words.Kind.DANGER
    assert words.kind_of("revoked") is words.Kind.DANGER
    assert words.kind_of("nobody has heard of it") is words.Kind.PLAIN


@pytest.mark.parametrize(
    ("status", "reason", "is_shown"),
    [
        ("failed", "queue_ttl_expired", True),
        ("failed", "no_worker_available", True),
        ("abandoned", "worker_lost", True),
        ("failed", "action_failed", False),
        ("failed", "deadline_passed", False),  # an action that could not begin may have said it
        ("scheduled", "queue_ttl_expired", False),  # the result of an attempt before
        ("completed", "succeeded", False),
    ],
)
def test_what_muster_says_of_an_end_is_for_everybody(
    status: str, reason: str, is_shown: bool
) -> None:
    said = {"error": "why", "message": "w1 did not take it", "failed_by": "somebody"}
    execution = make_execution(ExecutionStatus(status), reason=reason, result=said)
    viewer = principal(given("viewer"))
    assert shown.result(execution, seen_by=viewer) == (said if is_shown else "***")
    assert shown.parameters(execution, seen_by=viewer) == "***"
    messages = shown.messages([execution], seen_by=viewer)
    expected = "w1 did not take it" if is_shown else "***"
    assert messages == ({} if reason == "succeeded" else {execution.pk: expected})


def test_snapshot_shows_all_but_payloads_to_who_may_not_see_them() -> None:
    execution = make_execution(ExecutionStatus.SCHEDULED, parameters={"message": "hello"})
    step = make_step(StepState.ERROR, error={"message": "hello"})
    of_execution, of_task = (
        make_dlq_entry(subject_kind=each.kind, subject_id=each.id, snapshot=dict(each.snapshot))
        for each in [*subjects([execution]), *snapshots.take([step.task_id], now=NOW)]
    )
    viewer, seeing = principal(given("viewer")), principal(given("admin"))
    for entry in (of_execution, of_task):
        assert "hello" in str(investigations.snapshot(entry, seen_by=seeing))
        assert "hello" not in str(investigations.snapshot(entry, seen_by=viewer))
    snapshot = investigations.snapshot(of_execution, seen_by=viewer)
    assert (snapshot["parameters"], snapshot["status"]) == ("***", "scheduled")
    snapshot = investigations.snapshot(of_task, seen_by=viewer)
    assert snapshot["current_state"] == step.task.state
    assert [(each["name"], each["last_error"]) for each in snapshot["steps"]] == [
        (step.name, "***")
    ]
    of_letter = make_dlq_entry(dlq_reason="message_invalid", snapshot={"any": "hello"})
    assert investigations.snapshot(of_letter, seen_by=viewer) == "***"
