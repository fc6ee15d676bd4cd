"""Keys over the API: no answer, right or wrong, has a value in it."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.access.models import Identity, Key
from orchestrator.core import executions, keyholder
from orchestrator.core.keyholder import Wanted
from orchestrator.core.models import Execution
from tests import principals
from tests.core.api.client import Caller, pointers
from tests.factories import make_action
from tests.principals import given

pytestmark = pytest.mark.django_db

VALUE = "sk_live_0123456789"
BODY: dict[str, Any] = {"reference": "billing/stripe", "value": VALUE}


def opened(reference: str = "billing/stripe", owner: int = 0) -> str:
    wanted = Wanted(reference, "billing.charge", owner)
    return keyholder.holder().open([wanted])[wanted].value


def test_key_is_created_and_never_returned(billing: None, caller: Caller) -> None:
    answer = caller.post("/keys", BODY)
    assert answer.status_code == 201
    assert answer.json()["reference"] == "billing/stripe"
    assert answer.json()["created_by"] == "ci"
    listed = caller.get("/keys")
    assert [key["reference"] for key in listed.json()["items"]] == ["billing/stripe"]
    assert VALUE not in answer.content.decode() + listed.content.decode()
    assert "value" not in answer.json()
    assert opened() == VALUE


def test_key_is_rotated_and_revoked(billing: None, caller: Caller) -> None:
    caller.post("/keys", BODY)
    answer = caller.post("/keys/billing/stripe/rotate", {"value": "another-value"})
    assert (answer.status_code, answer.json()["version"]) == (200, 2)
    assert opened() == "another-value"
    assert caller.delete("/keys/billing/stripe").json()["state"] == "revoked"
    assert caller.get("/keys").json()["items"] == []
    assert len(caller.get("/keys", revoked="true").json()["items"]) == 1
    for answer in (
        caller.delete("/keys/billing/stripe"),
        caller.post("/keys/billing/stripe/rotate", {"value": "another-value"}),
        caller.delete("/keys/Billing/x"),
    ):
        assert answer.status_code == 404


def test_key_of_a_user_is_the_callers_own(billing: None, caller: Caller) -> None:
    caller.post("/keys", {"reference": "user/github", "value": VALUE})
    identity = Identity.objects.get(service_name="ci")
    assert Key.objects.get().owner == str(identity)
    assert opened("user/github", identity.pk) == VALUE
    author = principals.caller("author", given("author", packs=["billing"]))
    assert author.get("/keys").json()["items"] == []
    assert author.delete("/keys/user/github").status_code == 404


def test_user_of_a_key_requests_with_it(charge: None, caller: Caller) -> None:
    caller.post("/keys", {"reference": "user/github", "value": VALUE})
    body = {"action_ref": "billing.charge", "parameters": {"token": {"$key": "user/github"}}}
    assert caller.post("/executions", body).status_code == 201
    other = principals.caller("other", given("operator"))
    assert other.post("/executions", body).status_code == 422
    execution = Execution.objects.get()
    contents = executions.opened([execution])[execution.pk]
    assert contents.parameters == {"token": VALUE}


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"value": "short7!"}, "/value"),
        ({"value": 4711471147114711}, "/value"),
        ({"value": ["sk_live_in_a_list"]}, "/value"),
        ({"value": None}, "/value"),
        ({"reference": "stripe"}, "/reference"),
        ({"reference": "nopack/stripe"}, "/reference"),
        ({"reference": "installation/smtp"}, "/packs"),
        ({"packs": ["mail"]}, "/packs"),
        ({"packs": "mail"}, "/packs"),
        ({"valeu": "sk_live_misspelled"}, "/valeu"),
    ],
)
def test_wrong_key_is_refused_at_its_place_without_the_value(
    billing: None, caller: Caller, change: dict[str, Any], place: str
) -> None:
    answer = caller.post("/keys", BODY | change)
    assert answer.status_code == 422
    assert pointers(answer) == [place]
    text = answer.content.decode()
    given = change.get("value", VALUE)
    assert str(given if not isinstance(given, list) else given[0]) not in text or given is None
    assert not Key.objects.exists()


def test_second_key_of_a_name_is_a_conflict(billing: None, caller: Caller) -> None:
    caller.post("/keys", BODY)
    answer = caller.post("/keys", BODY)
    assert answer.status_code == 409
    assert answer.json()["type"].endswith("key-exists")


@pytest.fixture
def charge(billing: None) -> None:
    action = make_action("billing.charge")
    action.parameters_schema = {"properties": {"token": {"type": "string", "secret": True}}}
    action.save()


def test_execution_refers_to_a_key_and_shows_the_reference(charge: None, caller: Caller) -> None:
    caller.post("/keys", BODY)
    reference = {"$key": "billing/stripe"}
    body = {"action_ref": "billing.charge", "parameters": {"token": reference}}
    answer = caller.post("/executions", body)
    assert answer.status_code == 201
    assert answer.json()["parameters"] == {"token": reference}
    assert Execution.objects.get().parameters == {"token": reference}


def test_unknown_and_revoked_keys_are_422_at_their_place(charge: None, caller: Caller) -> None:
    body = {
        "action_ref": "billing.charge",
        "parameters": {"token": {"$key": "billing/stripe"}},
    }
    answer = caller.post("/executions", body)
    assert (answer.status_code, pointers(answer)) == (422, ["/parameters/token"])
    assert "there is no key billing/stripe that billing.charge may get" in answer.json()["detail"]
    caller.post("/keys", BODY)
    caller.delete("/keys/billing/stripe")
    answer = caller.post("/executions/bulk", {"executions": [body]})
    assert pointers(answer) == ["/executions/0/parameters/token"]
    assert "was revoked" in answer.json()["detail"]
    assert not Execution.objects.exists()


@pytest.mark.parametrize("value", ["hunter2-hunter2", 47114711])
@pytest.mark.parametrize("field", ["password", "api_token"])
def test_message_about_a_field_with_the_name_of_a_secret_quotes_nothing(
    caller: Caller, field: str, value: Any
) -> None:
    answer = caller.post("/executions", {"action_ref": "core.echo", field: value})
    assert answer.status_code == 422
    assert str(value) not in answer.content.decode()


def test_message_quotes_nothing_long(caller: Caller) -> None:
    long = "x" * 41
    answer = caller.post("/executions", {"action_ref": "core.echo", "priority": long})
    assert long not in answer.content.decode()
    assert "a text of 41 characters" in answer.json()["detail"]
    short = caller.post("/executions", {"action_ref": "core.echo", "priority": "high"})
    assert "found 'high'" in short.json()["detail"]
