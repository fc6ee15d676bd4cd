"""The same inquiry over the API, in the terminal and in the admin."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from orchestrator.access import execution_tokens
from orchestrator.access.models import AuditEvent, ExecutionToken
from orchestrator.core import clock, cursors
from orchestrator.core.models import Execution
from orchestrator.inquiries.models import Inquiry
from tests import commands, principals
from tests.core.api.client import Caller
from tests.factories import make_execution
from tests.inquiries.play import YES, YES_OR_NO, asked
from tests.principals import given
from tests.workers.helpers import sh
from workers import runtimes

pytestmark = pytest.mark.django_db

URL = "/api/v1/inquiries"


def open_one(**values: Any) -> Inquiry:
    return asked(now=clock.now(), **values)


def sent(text: str, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    client = Client(headers={"authorization": f"Bearer {text}"})
    content = "" if body is None else json.dumps(body)
    response = client.generic(method, path, content, content_type="application/json")
    return response.status_code, response.json()


def token_of(execution: Execution) -> str:
    """As its worker makes it after the claim."""
    return execution_tokens.issue([execution])[execution.pk]


def test_caller_asks_and_another_one_answers() -> None:
    one, other = (principals.token(name, given("operator")) for name in ("one", "other"))
    question = {"prompt": "Go?", "response_schema": YES_OR_NO, "ttl_seconds": 60}
    status, row = sent(one, "POST", URL, question)
    assert (status, row["state"], row["asked_by"]) == (201, "pending", "one")
    path = f"{URL}/{row['id']}"
    assert sent(other, "GET", path)[1]["may_answer"]
    assert not sent(one, "GET", path)[1]["may_answer"]
    status, problem = sent(one, "POST", f"{path}/respond", {"response": YES})
    assert (status, problem["detail"]) == (
        403, "one has asked this, so somebody else has to answer",
    )  # fmt: skip
    status, problem = sent(other, "POST", f"{path}/respond", {"response": {"approved": "x"}})
    assert (status, problem["errors"][0]["pointer"]) == (422, "/response/approved")
    status, row = sent(other, "POST", f"{path}/respond", {"response": YES, "answer_key": "k"})
    assert (status, row["state"], row["answered_by"]) == (200, "responded", "other")
    assert sent(other, "POST", f"{path}/respond", {"response": YES, "answer_key": "k"})[0] == 200
    status, problem = sent(other, "POST", f"{path}/respond", {"response": YES})
    assert (status, problem["type"]) == (409, "urn:muster:problem:already-ended")
    assert "was answered by other at" in problem["detail"]


def test_caller_who_asks_again_with_a_key_gets_the_same_inquiry() -> None:
    one, other = (principals.token(name, given("operator")) for name in ("one", "other"))
    question = {"prompt": "Go?", "idempotency_key": "release 7"}
    status, row = sent(one, "POST", URL, question)
    assert status == 201
    status, again = sent(one, "POST", URL, question)
    assert (status, again["id"]) == (200, row["id"])
    status, problem = sent(one, "POST", URL, question | {"prompt": "Stop?"})
    assert (status, problem["type"]) == (409, "urn:muster:problem:idempotency-conflict")
    assert sent(other, "POST", URL, question)[1]["id"] != row["id"]
    text = token_of(make_execution("running"))
    status, problem = sent(text, "POST", URL, question)
    assert (status, problem["errors"][0]["pointer"]) == (422, "/idempotency_key")


def test_question_of_a_request_says_what_a_timeout_stands_for() -> None:
    text = principals.token("one", given("operator"))
    question = {"prompt": "Go?", "response_schema": YES_OR_NO, "on_timeout": "complete"}
    status, problem = sent(text, "POST", URL, question)
    assert (status, problem["errors"][0]["pointer"]) == (422, "/default")
    status, row = sent(text, "POST", URL, question | {"default": {"approved": False}})
    assert (status, row["on_timeout"]) == (201, "complete")
    assert Inquiry.objects.get(pk=row["id"]).default == {"approved": False}


def test_refusals_are_in_the_audit() -> None:
    text = principals.token("one", given("operator"))
    row = open_one(assignees=["user:bob"])
    assert sent(text, "POST", f"{URL}/{row.pk}/respond", {"response": YES})[0] == 403
    event = AuditEvent.objects.get(decision="denied")
    assert (event.actor, event.object_id) == ("one", str(row.pk))


def test_question_is_refused_with_every_problem_and_its_place() -> None:
    text = principals.token("one", given("operator"))
    question = {"prompt": "", "response_schema": {"type": "array"}, "assignees": ["ada"]}
    status, problem = sent(text, "POST", URL, question)
    assert status == 422
    assert [each["pointer"] for each in problem["errors"]] == [
        "/prompt", "/response_schema/type", "/assignees/0",
    ]  # fmt: skip


def test_list_is_narrowed_by_state_and_execution() -> None:
    caller: Caller = principals.caller("one", given("viewer"))
    execution = make_execution("running")
    text = token_of(execution)
    _, mine = sent(text, "POST", URL, {"prompt": "Go?", "purpose": "chat"})
    other = open_one()

    def ids(query: str) -> set[str]:
        response = caller.get(f"/inquiries?{query}")
        return {row["id"] for row in response.json()["items"]}

    assert ids("state=pending") == {mine["id"], str(other.pk)}
    assert ids("state=responded") == set()
    assert ids(f"execution_id={execution.pk}") == {mine["id"]}


def test_pack_is_looked_for_in_a_bounded_number_of_those_in_a_state(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cursors, "LOOKED_AT_LIMIT", 2)
    caller = principals.caller("one", given("viewer"))
    first, *others = (open_one() for _ in range(3))
    Inquiry.objects.filter(pk__in=[each.pk for each in others]).update(pack="shop")
    page = caller.get("/inquiries?state=pending&pack=core").json()
    assert page["items"] == []
    rest = caller.get(page["next"].removeprefix(caller.base)).json()
    assert ([row["id"] for row in rest["items"]], rest["next"]) == ([str(first.pk)], None)


# --- tokens of executions ------------------------------------------------------------------------


def test_action_asks_once_for_a_purpose_with_the_token_of_its_execution() -> None:
    execution = make_execution("running")
    text = token_of(execution)
    status, row = sent(text, "POST", URL, {"prompt": "Go?", "purpose": "chat"})
    assert (status, row["asked_by_execution_id"]) == (201, str(execution.pk))
    status, again = sent(text, "POST", URL, {"prompt": "Go?", "purpose": "chat"})
    assert (status, again["id"]) == (200, row["id"])
    assert sent(text, "POST", URL, {"prompt": "Stop?", "purpose": "chat"})[0] == 409
    assert sent(text, "POST", f"{URL}/{row['id']}/respond", {"response": {}})[0] == 403


@pytest.mark.parametrize(
    "values",
    [{"attempt": 2}, {"worker_incarnation": 2}, {"status": "canceling"}],
    ids=["another attempt", "another life of its worker", "not running"],
)
def test_token_holds_only_for_its_attempt_while_it_runs(values: dict[str, Any]) -> None:
    execution = make_execution("running")
    text = token_of(execution)
    assert sent(text, "GET", URL)[0] == 200
    Execution.objects.filter(pk=execution.pk).update(**values)
    assert sent(text, "GET", URL)[0] == 401


def test_token_opens_nothing_but_inquiries_and_cannot_be_forged() -> None:
    text = token_of(make_execution("running"))
    assert sent(text, "GET", "/api/v1/executions")[0] == 403
    stored = ExecutionToken.objects.values_list("digest", flat=True)
    for wrong in (text[:-1], text + "a", "mse_", f"mse_{stored[0]}", "mse_" + 5_000 * "a"):
        assert sent(wrong, "GET", URL)[0] == 401


def test_tokens_are_forgotten_when_their_attempts_run_no_more() -> None:
    running, ended = make_execution("running"), make_execution("running")
    token_of(ended)
    text = token_of(running)
    Execution.objects.filter(pk=ended.pk).update(attempt=2)
    assert execution_tokens.prune(now=clock.now()) == {"removed": 1}
    assert sent(text, "GET", URL)[0] == 200


def test_execution_sees_what_its_own_tree_asked_and_what_names_its_action() -> None:
    execution = make_execution("running", correlation_id="order-7")
    sibling = make_execution("running", correlation_id="order-7")
    text = token_of(execution)
    _, own = sent(text, "POST", URL, {"prompt": "Go?"})
    _, of_tree = sent(token_of(sibling), "POST", URL, {"prompt": "Go?"})
    named = open_one(assignees=[f"action:{execution.action_ref}", "role:admin"])
    other = open_one(assignees=[f"action:{execution.action_ref}2"])
    _, page = sent(text, "GET", URL)
    assert {row["id"] for row in page["items"]} == {own["id"], of_tree["id"], str(named.pk)}
    assert sent(text, "GET", f"{URL}/{other.pk}")[0] == 404
    assert sent(text, "POST", f"{URL}/{other.pk}/respond", {"response": YES})[0] == 404


def test_process_finds_its_token_in_its_environment_if_it_has_one() -> None:
    script = 'printf %s "$MSTR_TOKEN"'
    assert runtimes.run(sh(script, token="mse_x")).result["stdout"] == "mse_x"
    assert runtimes.run(sh(script)).result["stdout"] == ""


# --- terminal and admin --------------------------------------------------------------------------


def test_command_lists_shows_answers_and_cancels() -> None:
    row, other = open_one(assignees=["role:operator"]), open_one()
    assert "role:operator" in commands.printed("inquiry", "list")
    assert "Go?" in commands.printed("inquiry", "show", str(row.pk))
    told = commands.printed("inquiry", "respond", str(row.pk), json.dumps(YES), "--json")
    assert json.loads(told)["response"] == YES
    commands.printed("inquiry", "cancel", str(other.pk), "--reason", "not needed")
    assert commands.printed("inquiry", "list").strip() == "No open inquiry."


def test_admin_answers_by_a_form_that_is_made_from_the_schema() -> None:
    schema = {
        "properties": {
            "approved": {"type": "boolean", "title": "Ship it"},
            "size": {"type": "integer"},
            "color": {"enum": ["red", "blue"]},
            "pin": {"type": "string", "secret": True},
        },
        "required": ["approved"],
    }
    row = open_one(schema=schema)
    browser = principals.staff("ada", given("operator"))
    assert "Open inquiries" in browser.get("/admin/").content.decode()
    assert "Go?" in browser.get("/admin/inquiries/inquiry/").content.decode()
    page = f"/admin/inquiries/inquiry/{row.pk}"
    respond = reverse("admin:inquiries_inquiry_respond", args=[row.pk])
    assert "whoever has inquiries.respond" in browser.get(f"{page}/change/").content.decode()
    form = browser.get(respond).content.decode()
    assert "Ship it" in form
    assert 'type="password"' in form
    for size in ("large", "[" * 100_000, "9" * 5_000):
        refused = browser.post(respond, {"p-size": size}).content.decode()
        assert "approved" in refused
    row.refresh_from_db()
    assert row.is_open
    values = {"p-approved": "true", "p-size": "3", "p-color": '"red"', "p-pin": "pin-4711"}
    assert browser.post(respond, values).status_code == 302
    row.refresh_from_db()
    assert row.response == {"approved": True, "size": 3, "color": "red", "pin": "pin-4711"}
    shown = browser.get(f"{page}/change/").content.decode()
    assert "pin-4711" not in shown
    assert "user:ada" in shown


@pytest.mark.parametrize("is_reader", [False, True])
def test_answer_that_a_timeout_stands_for_is_a_payload(is_reader: bool) -> None:
    row = open_one(schema={}, on_timeout="complete", default={"amount": "canary-41"})
    gives = ["viewer", *(["payloads.read"] if is_reader else [])]
    browser = principals.staff("ada", *map(given, gives))
    for page in (
        f"/admin/inquiries/inquiry/{row.pk}/change/",
        reverse("console:inquiry", args=[row.pk]),
    ):
        assert ("canary-41" in browser.get(page).content.decode()) == is_reader


def test_default_of_a_secret_is_shown_nowhere() -> None:
    number = {"type": "integer", "secret": True, "default": 47114711}
    row = open_one(schema={"properties": {"pin": number}})
    browser = principals.staff("ada", given("operator"), given("payloads.read"))
    for page in (
        f"/admin/inquiries/inquiry/{row.pk}/change/",
        reverse("admin:inquiries_inquiry_respond", args=[row.pk]),
        reverse("console:inquiry", args=[row.pk]),
    ):
        assert "47114711" not in browser.get(page).content.decode()
    answer = principals.caller("one", given("viewer")).get(f"/inquiries/{row.pk}")
    assert answer.json()["response_schema"]["properties"]["pin"]["default"] == "***"


def test_admin_offers_no_answer_to_who_may_not() -> None:
    row = open_one(assignees=["user:bob"])
    browser = principals.staff("ada", given("operator"))
    assert browser.get(reverse("admin:inquiries_inquiry_respond", args=[row.pk])).status_code == 403
    content = browser.get(f"/admin/inquiries/inquiry/{row.pk}/change/").content.decode()
    assert "only user:bob may answer" in content
