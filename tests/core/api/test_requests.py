"""Requests of executions, one and many, and what is wrong with a body."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from orchestrator.core.models import Action, Execution
from tests.core.api.client import BASE, pointers

pytestmark = pytest.mark.django_db


# --- request --------------------------------------------------------------------------------------


def test_request_is_accepted_and_its_row_returned(caller, action, worker):
    body = {
        "action_ref": "core.echo",
        "parameters": {"message": "hé"},
        "worker_id": worker.pk,
        "priority": 5,
        "timeout_seconds": 30,
        "queue_ttl_ms": 1000,
        "deadline_seconds": 60,
        "correlation_id": "c1",
        "reason": "the disk was full",
    }
    response = caller.post("/executions", body)
    assert response.status_code == 201
    shown = response.json()
    row = Execution.objects.get(pk=shown["id"])
    assert response["Location"] == f"{BASE}/executions/{row.pk}"
    assert shown["status"] == row.status == "requested"
    assert shown["pinned_worker_id"] == row.pinned_worker_id == worker.pk
    assert shown["parameters"] == row.parameters == {"message": "hé"}
    assert (row.priority, row.timeout_seconds, row.queue_ttl_ms) == (5, 30, 1000)
    assert row.deadline_at == row.created_at + timedelta(seconds=60)
    assert row.requested_by == "ci"
    assert shown["correlation_id"] == "c1"
    assert shown["request_reason"] == "the disk was full"


@pytest.mark.parametrize(
    ("body", "pointer", "says"),
    [
        ('{"action_ref": "core.echo", "action_ref": "core.fail"}', "", "'action_ref' again"),
        ('{"action_ref": "core.echo", "parameters": {"a": 1, "a": 1}}', "", "'a' again"),
        (
            '{"action_ref": "core.echo", "parameters": {"a": [1, -%s]}}' % ("9" * 5_000),
            "/parameters/a/1",
            "at most 4,300 digits, found 5,000",
        ),
        ('{"a": %s, ' % ("9" * 5_000), "", "at most 4,300 digits"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused_by_its_name(caller, action, body, pointer, says):
    response = caller.send("/executions", body)
    assert response.status_code == 422
    (error,) = response.json()["errors"]
    assert error["pointer"] == pointer
    assert says in error["message"]
    assert not Execution.objects.exists()


def test_idempotency_key_gives_the_first_row_again(caller, action):
    body = {"action_ref": "core.echo", "idempotency_key": "k"}
    first, second = caller.post("/executions", body), caller.post("/executions", body)
    assert (first.status_code, second.status_code) == (201, 200)
    assert first.json()["id"] == second.json()["id"]
    assert Execution.objects.count() == 1


def test_idempotency_key_for_something_else_is_a_conflict(caller, action):
    caller.post("/executions", {"action_ref": "core.echo", "idempotency_key": "k"})
    other = {"action_ref": "core.echo", "idempotency_key": "k", "parameters": {"message": "x"}}
    response = caller.post("/executions", other)
    assert response.status_code == 409
    assert response.json()["type"] == "urn:muster:problem:idempotency-conflict"
    assert Execution.objects.count() == 1


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"action_ref": "core.nothing"}, "/action_ref"),
        ({"action_ref": ""}, "/action_ref"),
        ({"action_ref": "x" * 131}, "/action_ref"),
        ({"action_ref": 5}, "/action_ref"),
        ({"worker_id": 999}, "/worker_id"),
        ({"worker_id": 2**31}, "/worker_id"),
        ({"worker_id": 0}, "/worker_id"),
        ({"worker_id": True}, "/worker_id"),
        ({"worker_id": "1"}, "/worker_id"),
        ({"priority": 101}, "/priority"),
        ({"priority": -101}, "/priority"),
        ({"priority": 1.5}, "/priority"),
        ({"timeout_seconds": 0}, "/timeout_seconds"),
        ({"timeout_seconds": -1}, "/timeout_seconds"),
        ({"timeout_seconds": 7 * 86_400 + 1}, "/timeout_seconds"),
        ({"queue_ttl_ms": 0}, "/queue_ttl_ms"),
        ({"queue_ttl_ms": 300_001}, "/queue_ttl_ms"),
        ({"scheduled_timeout_seconds": 300.1}, "/scheduled_timeout_seconds"),
        ({"queue_ttl_ms": 2**31}, "/queue_ttl_ms"),
        ({"deadline_seconds": 1e-9}, "/deadline_seconds"),
        ({"deadline_seconds": 1e300}, "/deadline_seconds"),
        ({"idempotency_key": ""}, "/idempotency_key"),
        ({"idempotency_key": "k" * 201}, "/idempotency_key"),
        ({"correlation_id": "c" * 101}, "/correlation_id"),
        ({"reason": "c" * 501}, "/reason"),
        ({"parameters": []}, "/parameters"),
        ({"parameters": None}, "/parameters"),
        ({"parameters": {"message": 1}}, "/parameters/message"),
        ({"parameters": {"times": 0}}, "/parameters/times"),
    ],
)
def test_refused_request_names_the_place_and_leaves_no_row(caller, action, change, pointer):
    response = caller.post("/executions", {"action_ref": "core.echo", **change})
    assert response.status_code == 422
    assert pointers(response) == [pointer]
    assert not Execution.objects.exists()


def test_largest_allowed_values_are_accepted(caller, action):
    body = {
        "action_ref": "core.echo",
        "priority": -100,
        "timeout_seconds": 7 * 86_400,
        "queue_ttl_ms": 300_000,
        "scheduled_timeout_seconds": 300,
        "deadline_seconds": 366 * 86_400,
        "idempotency_key": "k" * 200,
        "correlation_id": "c" * 100,
    }
    assert caller.post("/executions", body).status_code == 201


def test_disabled_action_is_refused(caller, action):
    Action.objects.update(enabled=False)
    response = caller.post("/executions", {"action_ref": "core.echo"})
    assert pointers(response) == ["/action_ref"]


def test_unknown_field_is_refused_and_the_nearest_one_named(caller, action):
    response = caller.post("/executions", {"action_ref": "core.echo", "timeout_secnds": 1})
    assert pointers(response) == ["/timeout_secnds"]
    assert "did you mean timeout_seconds?" in response.json()["errors"][0]["message"]
    bulk = {"executions": [{"action_ref": "core.echo"}, {"action_reff": "core.echo"}]}
    response = caller.post("/executions/bulk", bulk)
    assert pointers(response) == ["/executions/1/action_reff"]
    assert "did you mean action_ref?" in response.content.decode()


@pytest.mark.usefixtures("still_clock")
def test_request_takes_few_queries(caller, action, django_assert_max_num_queries):
    body = {"action_ref": "core.echo"}
    caller.post("/executions", body)  # notes the token's use
    with django_assert_max_num_queries(5):  # token, action, savepoint, insert, release
        caller.post("/executions", body)


# --- bulk -----------------------------------------------------------------------------------------


def test_bulk_returns_ids_in_order(caller, action):
    news = [{"action_ref": "core.echo", "parameters": {"times": n + 1}} for n in range(7)]
    response = caller.post("/executions/bulk", {"executions": news})
    assert response.status_code == 201
    found = [Execution.objects.get(pk=id).parameters["times"] for id in response.json()["ids"]]
    assert found == [1, 2, 3, 4, 5, 6, 7]


def test_bulk_is_all_or_none(caller, action):
    news = [{"action_ref": "core.echo"}, {"action_ref": "core.echo", "parameters": {"times": 0}}]
    response = caller.post("/executions/bulk", {"executions": news})
    assert response.status_code == 422
    assert pointers(response) == ["/executions/1/parameters/times"]
    assert not Execution.objects.exists()


def test_bulk_with_a_key_of_something_else_leaves_no_row(caller, action):
    first = {"action_ref": "core.echo", "parameters": {"message": "first"}}
    caller.post("/executions", {**first, "idempotency_key": "k"})
    news = [{"action_ref": "core.echo"}, {"action_ref": "core.echo", "idempotency_key": "k"}]
    assert caller.post("/executions/bulk", {"executions": news}).status_code == 409
    assert Execution.objects.count() == 1


def test_bulk_returns_the_rows_of_keys_that_were_used(caller, action):
    body = {"action_ref": "core.echo", "idempotency_key": "k"}
    first = caller.post("/executions", body).json()["id"]
    news = [{"action_ref": "core.echo"}, {"action_ref": "core.echo", "idempotency_key": "k"}]
    ids = caller.post("/executions/bulk", {"executions": news}).json()["ids"]
    assert ids[1] == first
    assert ids[0] != ids[1]


def test_bulk_refuses_a_key_that_it_has_twice(caller, action):
    new = {"action_ref": "core.echo", "idempotency_key": "k"}
    response = caller.post("/executions/bulk", {"executions": [new, {**new, "priority": 1}]})
    assert pointers(response) == ["/executions/1/idempotency_key"]


def test_bulk_is_limited(caller, action, settings):
    limit = settings.MUSTER.bulk_limit
    news = [{"action_ref": "core.echo"}] * (limit + 1)
    assert pointers(caller.post("/executions/bulk", {"executions": news})) == ["/executions"]
    assert not Execution.objects.exists()
    assert caller.post("/executions/bulk", {"executions": news[:limit]}).status_code == 201
    assert pointers(caller.post("/executions/bulk", {"executions": []})) == ["/executions"]


# --- hostile bodies -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 422),
        (b"{", 400),
        (b"\xff\xfe", 400),
        (b'{"action_ref": "\xed\xa0\x80"}', 400),
        (b'\xef\xbb\xbf{"action_ref": "core.echo"}', 400),
        (b'{"action_ref": "a\x00b"}', 400),
        (b"null", 422),
        (b"[]", 422),
        (b'"core.echo"', 422),
        (b"NaN", 422),
        (b'{"action_ref": "core.echo", "parameters": {"x": NaN}}', 422),
        (b'{"action_ref": "core.echo", "parameters": {"x": -Infinity}}', 422),
        (b'{"action_ref": "core.echo", "parameters": {"x": 1e999}}', 422),
        (b'{"action_ref": "core.echo", "timeout_seconds": 1e999}', 422),
        (b'{"action_ref": "core.echo", "parameters": {"x": "\\u0000"}}', 422),
        (b'{"action_ref": "core.echo", "parameters": {"\\u0000": 1}}', 422),
        (b'{"action_ref": "core.echo", "parameters": {"x": ["\\ud800"]}}', 422),
        (b'{"action_ref": "core.echo", "parameters": {"\\udfff": 1}}', 422),
        (b'{"action_ref": "core.echo", "correlation_id": "a\\u0000"}', 422),
        (b'{"action_ref": "\\ud800"}', 422),
        (b'{"\\ud800": 1}', 422),
        (b'{"action_ref": "core.echo", "parameters": {"x": ' + b"9" * 5000 + b"}}", 422),
        (b"[" * 100_000, 422),
        (b'{"x":' * 100_000, 422),
        (b'{"action_ref": "core.echo", "parameters": {"x": ' + b"[" * 60 + b"]" * 60 + b"}}", 422),
    ],
)
def test_hostile_body_is_refused_and_leaves_no_row(caller, action, body, status):
    response = caller.send("/executions", body)
    assert response.status_code == status, response.content
    assert not Execution.objects.exists()


def test_fault_deep_in_parameters_is_pointed_at(caller, action):
    parameters = {"a/b": [{}, {"c~d": "\0"}]}
    response = caller.post("/executions", {"action_ref": "core.echo", "parameters": parameters})
    assert pointers(response) == ["/parameters/a~1b/1/c~0d"]


def test_unusual_but_storable_text_is_kept(caller, action):
    message = "\x01 \u2028 𝄞 \uffff \x7f"
    body = {"action_ref": "core.echo", "parameters": {"message": message, "n": 10**30}}
    response = caller.post("/executions", body)
    assert response.status_code == 201
    assert response.json()["parameters"] == body["parameters"]
    assert caller.get(f"/executions/{response.json()['id']}").json()["parameters"] == {
        "message": message, "n": 10**30
    }  # fmt: skip


def test_depth_up_to_the_limit_is_accepted(caller, action):
    nested: Any = "x"
    for _ in range(47):
        nested = [nested]
    body = {"action_ref": "core.echo", "parameters": {"x": nested}}
    assert caller.post("/executions", body).status_code == 201


@pytest.mark.parametrize(
    "content_type", ["text/plain", "", "application/x-www-form-urlencoded", "application/jsonx"]
)
def test_other_content_types_are_refused(caller, action, content_type):
    response = caller.send("/executions", '{"action_ref": "core.echo"}', content_type=content_type)
    assert response.status_code == 415


def test_content_type_may_have_parameters(caller, action):
    body = '{"action_ref": "core.echo"}'
    response = caller.send("/executions", body, content_type="Application/JSON; charset=utf-8")
    assert response.status_code == 201


def test_oversized_body_is_refused(caller, action, settings):
    body = json.dumps({"action_ref": "core.echo", "parameters": {"x": "y" * 2_000_000}})
    response = caller.send("/executions", body)
    assert response.status_code == 413
    assert str(settings.MUSTER.max_request_bytes) in response.json()["detail"]
    assert not Execution.objects.exists()


def test_request_may_ask_for_labels_retries_and_a_scheduled_timeout(caller, action):
    body = {
        "action_ref": "core.echo",
        "parameters": {"message": "x"},
        "worker_selector": {"zone": "b"},
        "retry": {"max_attempts": 3, "backoff": "linear"},
        "scheduled_timeout_seconds": 7,
    }
    shown = caller.post("/executions", body).json()
    assert shown["worker_selector"] == {"zone": "b"}
    assert shown["retry_policy"] == {"max_attempts": 3, "backoff": "linear"}
    assert shown["scheduled_timeout_seconds"] == 7
    again = caller.get(f"/executions/{shown['id']}").json()
    assert again["retry_policy"] == shown["retry_policy"]
    refused = caller.post("/executions", body | {"retry": {"backoff": "quadratic"}})
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["pointer"] == "/retry/backoff"
    assert caller.post("/executions", body | {"retry": {"tries": 3}}).status_code == 422
