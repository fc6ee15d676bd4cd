"""The REST API, by its requests and answers."""

from __future__ import annotations

import base64
import dataclasses
import json
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import OperationalError
from django.test import Client, override_settings

from orchestrator.access import tokens
from orchestrator.access.models import ApiToken
from orchestrator.core import clock, executions, publisher
from orchestrator.core.api import api, health
from orchestrator.core.models import Action, DLQEntry, Execution, Pack, Worker
from orchestrator.core.state_machine import TransitionConflict, transition

pytestmark = pytest.mark.django_db

BASE = "/api/v1"
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
SCHEMA = {
    "type": "object",
    "properties": {"message": {"type": "string"}, "times": {"type": "integer", "minimum": 1}},
    "additionalProperties": {},
}


class Caller:
    """A client that holds a token; it checks what holds for each answer."""

    def __init__(self, text: str | None) -> None:
        headers = {} if text is None else {"authorization": f"Bearer {text}"}
        self.client = Client(headers=headers, raise_request_exception=False)

    def get(self, path: str, **query: Any) -> Any:
        return self._checked(self.client.get(BASE + path, query))

    def post(self, path: str, body: Any = None, **options: Any) -> Any:
        return self.send(path, json.dumps(body) if body is not None else "", **options)

    def patch(self, path: str, body: Any = None) -> Any:
        return self._checked(
            self.client.patch(BASE + path, json.dumps(body), content_type="application/json")
        )

    def delete(self, path: str) -> Any:
        return self._checked(self.client.delete(BASE + path))

    def send(self, path: str, body: str | bytes, content_type: str = "application/json") -> Any:
        return self._checked(self.client.post(BASE + path, body, content_type=content_type))

    def _checked(self, response: Any) -> Any:
        if response.status_code >= 400:
            assert response["Content-Type"] == "application/problem+json", response.content
            problem = response.json()
            assert problem["status"] == response.status_code
            assert {"type", "title", "status", "detail", "instance", "errors"} == problem.keys()
            assert "Traceback" not in response.content.decode()
        return response


def pointers(response: Any) -> list[str]:
    return [error["pointer"] for error in response.json()["errors"]]


@pytest.fixture
def action() -> Action:
    pack = Pack.objects.create(name="core", version="1", path="/nowhere", installed_at=NOW)
    return Action.objects.create(
        pack=pack,
        ref="core.echo",
        runtime="python",
        entry_point="actions:echo",
        parameters_schema=SCHEMA,
        updated_at=NOW,
    )


@pytest.fixture
def worker() -> Worker:
    return Worker.objects.create(
        name="w1", status="active", capacity=4, runtimes=["python"], heartbeat_at=clock.now()
    )


@pytest.fixture
def token() -> str:
    return tokens.create(name="ci", now=NOW)[1]


@pytest.fixture
def caller(token: str) -> Caller:
    return Caller(token)


@pytest.fixture
def request_one(action: Action):
    def request(**values: Any) -> Execution:
        new = executions.NewExecution(action_ref=action.ref, **values)
        return executions.request(new, requested_by="test", now=clock.now())

    return request


# --- request -----------------------------------------------------------------------------------


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
        ({"priority": None}, "/priority"),
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
    assert set(pointers(response)) == {"/executions/1/action_ref", "/executions/1/action_reff"}
    assert "did you mean action_ref?" in response.content.decode()


@pytest.mark.usefixtures("still_clock")
def test_request_takes_few_queries(caller, action, django_assert_max_num_queries):
    body = {"action_ref": "core.echo"}
    caller.post("/executions", body)  # notes the token's use
    with django_assert_max_num_queries(5):  # token, action, savepoint, insert, release
        caller.post("/executions", body)


# --- bulk --------------------------------------------------------------------------------------


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


def test_bulk_with_a_key_of_something_else_leaves_no_row(caller, action, request_one):
    request_one(idempotency_key="k", parameters={"message": "first"})
    news = [{"action_ref": "core.echo"}, {"action_ref": "core.echo", "idempotency_key": "k"}]
    assert caller.post("/executions/bulk", {"executions": news}).status_code == 409
    assert Execution.objects.count() == 1


def test_bulk_returns_the_rows_of_keys_that_were_used(caller, action, request_one):
    first = request_one(idempotency_key="k")
    news = [{"action_ref": "core.echo"}, {"action_ref": "core.echo", "idempotency_key": "k"}]
    ids = caller.post("/executions/bulk", {"executions": news}).json()["ids"]
    assert ids[1] == str(first.pk)
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


# --- hostile bodies ----------------------------------------------------------------------------


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


# --- list --------------------------------------------------------------------------------------


def test_pages_together_have_every_row_once_newest_first(caller, request_one):
    made = [str(request_one().pk) for _ in range(7)]
    seen, path, pages = [], f"{BASE}/executions?limit=3&action_ref=core.echo", 0
    while path:
        page = caller.get(path.removeprefix(BASE)).json()
        seen += [item["id"] for item in page["items"]]
        path, pages = page["next"], pages + 1
    assert seen == made[::-1]
    assert pages == 3


def test_rows_that_come_meanwhile_shift_no_page(caller, request_one):
    made = [str(request_one().pk) for _ in range(4)]
    first = caller.get("/executions", limit=2).json()
    request_one()
    second = caller.get("/executions", limit=2, cursor=first["next_cursor"]).json()
    assert [item["id"] for item in second["items"]] == [made[1], made[0]]
    assert second["next"] is None


def test_last_full_page_has_no_next(caller, request_one):
    request_one()
    page = caller.get("/executions", limit=1).json()
    assert (len(page["items"]), page["next"], page["next_cursor"]) == (1, None, None)


def test_filters(caller, request_one, worker):
    one = request_one(correlation_id="c1", idempotency_key="k1")
    two = request_one()
    executions.cancel(execution_id=two.pk, actor="test", now=clock.now())
    three = request_one()
    transition(three, "schedule", now=clock.now(), actor="t", worker=worker, start_by=clock.now())

    def found(**query: Any) -> set[str]:
        response = caller.get("/executions", **query)
        assert response.status_code == 200, response.content
        return {item["id"] for item in response.json()["items"]}

    ids = [str(row.pk) for row in (one, two, three)]
    assert found() == set(ids)
    assert found(status="requested") == {ids[0]}
    assert found(status=["requested", "cancelled"]) == {ids[0], ids[1]}
    assert found(open="true") == {ids[0], ids[2]}
    assert found(open="false") == {ids[1]}
    assert found(action_ref="core.other") == set()
    assert found(worker="w1") == found(worker=worker.pk) == {ids[2]}
    assert found(reason="cancelled") == {ids[1]}
    assert found(correlation_id="c1") == found(idempotency_key="k1") == {ids[0]}
    second = timedelta(seconds=1)
    after = (one.created_at - second).isoformat()
    assert found(created_after=after) == set(ids)
    assert found(created_before=after) == set()
    assert found(created_before=(three.created_at + second).isoformat()) == set(ids)


@pytest.mark.parametrize(
    ("query", "pointer"),
    [
        ({"limit": 0}, "?limit"),
        ({"limit": 501}, "?limit"),
        ({"limit": "x"}, "?limit"),
        ({"status": "faild"}, "?status.0"),
        ({"reason": "because"}, "?reason"),
        ({"open": "perhaps"}, "?open"),
        ({"worker": "nobody"}, "?worker"),
        ({"worker": "9" * 5000}, "?worker"),
        ({"worker": "²"}, "?worker"),
        ({"worker": "w\0"}, "?worker"),
        ({"action_ref": "\0"}, "?action_ref"),
        ({"correlation_id": "\0"}, "?correlation_id"),
        ({"cursor": "x"}, "?cursor"),
        ({"cursor": "é"}, "?cursor"),
        ({"cursor": "AAAA"}, "?cursor"),
        ({"cursor": "a" * 5000}, "?cursor"),
        ({"created_after": "yesterday"}, "?created_after"),
        ({"created_after": "2026-03-01T00:00:00"}, "?created_after"),
        ({"created_after": "1752000000"}, "?created_after"),
        ({"created_after": "0001-01-01T00:00:00+14:00"}, "?created_after"),
        ({"created_before": "9999-12-31T23:59:59-14:00"}, "?created_before"),
        ({"created_before": "1e300"}, "?created_before"),
        ({"statsu": "failed"}, "?statsu"),
    ],
)
def test_bad_filter_is_named(caller, action, query, pointer):
    response = caller.get("/executions", **query)
    assert response.status_code == 422, response.content
    assert pointers(response) == [pointer]


@pytest.mark.usefixtures("still_clock")
def test_listing_is_two_queries_however_many_rows(
    caller, request_one, django_assert_max_num_queries
):
    for _ in range(20):
        request_one()
    caller.get("/executions")
    with django_assert_max_num_queries(2):  # token, rows
        caller.get("/executions")


# --- one, and cancel ---------------------------------------------------------------------------


def test_one_execution_has_its_history(caller, request_one):
    execution = request_one(parameters={"message": "x"})
    executions.cancel(execution_id=execution.pk, actor="somebody", now=clock.now())
    shown = caller.get(f"/executions/{execution.pk}").json()
    assert shown["parameters"] == {"message": "x"}
    assert shown["status"] == "cancelled"
    assert shown["result"]["failed_by"] == "somebody"
    (entry,) = shown["history"]
    assert (entry["event"], entry["from_status"], entry["to_status"], entry["actor"]) == (
        "cancel", "requested", "cancelled", "somebody"
    )  # fmt: skip


@pytest.mark.parametrize("id", [uuid.uuid4(), "x", "0", "a" * 3000, "%00", "%ff", "{}", "../x"])
@pytest.mark.parametrize("noun", ["executions", "dlq", "workers", "actions"])
def test_nothing_has_this_id(caller, noun, id):
    assert caller.get(f"/{noun}/{id}").status_code in (404, 422)


def test_cancel_before_it_runs_is_done_at_once(caller, request_one):
    execution = request_one()
    response = caller.post(f"/executions/{execution.pk}/cancel")
    assert (response.status_code, response.json()["status"]) == (202, "cancelled")
    history = caller.get(f"/executions/{execution.pk}").json()["history"]
    assert history[-1]["actor"] == "ci"


def test_cancel_of_what_is_over_is_a_conflict(caller, request_one):
    execution = request_one()
    caller.post(f"/executions/{execution.pk}/cancel")
    response = caller.post(f"/executions/{execution.pk}/cancel")
    assert response.status_code == 409
    assert response.json()["type"] == "urn:muster:problem:already-over"


def test_cancel_of_nothing_is_not_found(caller):
    assert caller.post(f"/executions/{uuid.uuid4()}/cancel").status_code == 404


def test_cancel_that_keeps_losing_its_race_says_when_to_retry(caller, request_one, monkeypatch):
    def lose(*_: Any, **__: Any) -> None:
        raise TransitionConflict

    monkeypatch.setattr("orchestrator.core.executions.cancellation._cancel", lose)
    response = caller.post(f"/executions/{request_one().pk}/cancel")
    assert (response.status_code, response["Retry-After"]) == (409, "1")


# --- workers, dead letters, actions ------------------------------------------------------------


def test_workers_show_age_freshness_and_load(caller, request_one, worker):
    now = clock.now()
    Worker.objects.create(
        name="w2", status="active", runtimes=["shell"], heartbeat_at=now - timedelta(seconds=31)
    )
    Worker.objects.create(name="w3")
    transition(request_one(), "schedule", now=now, actor="t", worker=worker, start_by=now)
    fresh, stale, never = caller.get("/workers").json()["items"]
    assert (fresh["fresh"], fresh["eligible"], fresh["load"]) == (True, True, 1)
    assert 0 <= fresh["heartbeat_age_seconds"] < 10
    assert (stale["fresh"], stale["eligible"], stale["load"]) == (False, False, 0)
    assert 31 <= stale["heartbeat_age_seconds"] < 41
    assert (never["fresh"], never["heartbeat_age_seconds"]) == (False, None)
    shown = caller.get(f"/workers/{worker.pk}").json()
    assert {**shown, "heartbeat_age_seconds": 0} == {**fresh, "heartbeat_age_seconds": 0}


def test_orders_are_carried_out_and_kept_with_who_and_why(caller, worker):
    url = f"/workers/{worker.pk}"
    shown = caller.post(f"{url}/cordon", {"reason": "new disk"}).json()
    assert (shown["cordoned"], shown["cordon_reason"], shown["eligible"]) == (
        True,
        "new disk",
        False,
    )
    assert caller.post(f"{url}/drain", {"reason": "new disk"}).json()["status"] == "draining"
    assert caller.post(f"{url}/uncordon", {"reason": "done"}).json()["cordoned"] is False
    refused = caller.post(f"{url}/retire", {"reason": "gone"})
    assert (refused.status_code, refused.json()["type"]) == (409, "urn:muster:problem:worker-is-up")
    told = [(e["kind"], e["reason"]) for e in caller.get(f"{url}/events").json()["items"]]
    assert told == [("uncordoned", "done"), ("draining", "new disk"), ("cordoned", "new disk")]
    actors = {event["actor"] for event in caller.get(f"{url}/events?limit=2").json()["items"]}
    assert actors == {"ci"}


@pytest.mark.parametrize("verb", ["cordon", "uncordon", "drain", "retire"])
def test_order_without_reason_or_worker_is_refused(caller, worker, verb):
    assert caller.post(f"/workers/{worker.pk}/{verb}", {}).status_code == 422
    assert caller.post(f"/workers/{worker.pk}/{verb}", {"reason": ""}).status_code == 422
    assert caller.post(f"/workers/4711/{verb}", {"reason": "x"}).status_code == 404


def test_retired_workers_are_listed_only_when_asked_for(caller, worker):
    Worker.objects.create(name="w0", gone_at=NOW, retired_at=NOW, heartbeat_at=NOW)
    names = [w["name"] for w in caller.get("/workers").json()["items"]]
    assert names == [worker.name]
    every = [w["name"] for w in caller.get("/workers?retired=true").json()["items"]]
    assert every == ["w0", worker.name]


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


def dlq_entry(**values: Any) -> DLQEntry:
    known: dict[str, Any] = {"dlq_reason": "queue_ttl_expired", "dlq_timestamp": NOW}
    return DLQEntry.objects.create(**known | values)


def test_dlq_entries(caller, request_one):
    execution = request_one()
    first = dlq_entry(subject_kind="execution", subject_id=execution.pk)
    second = dlq_entry(
        dlq_reason="message_invalid", raw_body=b"\xff\x00", fingerprint="2", headers={"task": "x"}
    )

    def found(**query: Any) -> list[str]:
        return [item["dlq_entry_uuid"] for item in caller.get("/dlq", **query).json()["items"]]

    one, two = str(first.dlq_entry_uuid), str(second.dlq_entry_uuid)
    assert found() == [two, one]
    assert found(dlq_reason="message_invalid") == [two]
    assert found(resolution_status="pending") == [two, one]
    assert found(resolution_status="cancelled") == []
    assert found(execution_id=execution.pk) == [one]
    assert found(subject_kind="execution", subject_id=execution.pk) == [one]
    assert found(task_uuid=execution.pk) == []
    assert found(limit=1, offset=1) == [one]
    assert found(offset=2) == []
    page = caller.get("/dlq", limit=1).json()
    assert found(cursor=page["next_cursor"]) == [one]
    dlq_entry()
    page = caller.get("/dlq", limit=1, offset=1).json()
    assert [item["dlq_entry_uuid"] for item in page["items"]] == [two]
    assert "offset" not in page["next"]
    assert caller.get(page["next"].removeprefix(BASE)).json()["items"][0]["dlq_entry_uuid"] == one
    shown = caller.get(f"/dlq/entry/{two}").json()
    assert base64.b64decode(shown["raw_body"]) == b"\xff\x00"
    assert shown["headers"] == {"task": "x"}
    assert caller.get(f"/dlq/entry/{one}").json()["raw_body"] is None
    assert caller.get(f"/dlq/entry/{execution.pk}").status_code == 404
    assert pointers(caller.get("/dlq", cursor="LTE")) == ["?cursor"]
    assert pointers(caller.get("/dlq", execution_id="x")) == ["?execution_id"]
    assert pointers(caller.get("/dlq", reason="x")) == ["?reason"]
    assert pointers(caller.get("/dlq", offset=-1)) == ["?offset"]


def test_dlq_entry_is_opened_by_hand_annotated_and_closed(caller, request_one, token):
    execution = request_one(parameters={"message": "x"})
    body = {"execution_id": str(execution.pk), "detail": "looks odd"}
    response = caller.post("/dlq", body)
    assert response.status_code == 201
    opened = response.json()
    assert (opened["dlq_reason"], opened["opened_by"]) == ("manual_dlq", "ci")
    assert opened["task_snapshot"]["parameters"] == {"message": "x"}
    assert caller.get(response["Location"].removeprefix(BASE)).json() == opened
    assert caller.post("/dlq", body).json()["type"] == "urn:muster:problem:already-open"
    assert pointers(caller.post("/dlq", body | {"execution_id": str(uuid.uuid4())})) == [
        "/execution_id"
    ]
    assert pointers(caller.post("/dlq", body | {"detail": ""})) == ["/detail"]
    path = f"/dlq/entry/{opened['dlq_entry_uuid']}"
    caller.patch(path, {"note": "looked", "metadata": {"ticket": 7}})
    noted = caller.patch(path, {"resolution_status": "pending", "metadata": {"by": "ada"}}).json()
    assert [note["text"] for note in noted["notes"]] == ["looked"]
    assert noted["notes"][0]["by"] == "ci"
    assert noted["metadata"] == {"ticket": 7, "by": "ada"}
    closed = caller.patch(path, {"resolution_status": "manually_resolved", "note": "done"})
    assert closed.status_code == 200
    assert (closed.json()["resolved_by"], len(closed.json()["notes"])) == ("ci", 2)
    again = caller.patch(path, {"note": "too late"})
    assert (again.status_code, again.json()["type"]) == (409, "urn:muster:problem:already-closed")
    assert caller.get(path).json() == closed.json()
    execution.refresh_from_db()
    assert execution.status == "requested"


@pytest.mark.parametrize(
    ("body", "wrong"),
    [
        ({}, ""),
        ({"resolution_status": "pending"}, ""),
        ({"resolution_status": "solved"}, "/resolution_status"),
        ({"resolved_by": "someone else", "note": "n"}, "/resolved_by"),
        ({"notes": []}, "/notes"),
        ({"metadata": []}, "/metadata"),
    ],
)
def test_change_of_a_dlq_entry_that_makes_no_sense_is_refused(caller, body, wrong):
    entry = dlq_entry()
    assert pointers(caller.patch(f"/dlq/entry/{entry.dlq_entry_uuid}", body)) == [wrong]
    entry.refresh_from_db()
    assert (entry.resolution_status, entry.notes, entry.metadata) == ("pending", [], {})


def test_actions(caller, action):
    (listed,) = caller.get("/actions").json()["items"]
    assert (listed["ref"], listed["pack"]) == ("core.echo", {"name": "core", "version": "1"})
    assert caller.get("/actions/core.echo").json()["parameters_schema"] == SCHEMA


# --- who may -----------------------------------------------------------------------------------


def _documented() -> list[tuple[str, str, dict[str, Any]]]:
    paths = api.get_openapi_schema(path_prefix="/api/v1/")["paths"]
    return [
        (method, path, operation)
        for path, operations in paths.items()
        for method, operation in operations.items()
    ]


def test_every_route_of_the_design_is_documented():
    assert {(method, path.removeprefix(BASE)) for method, path, _ in _documented()} == {
        ("post", "/executions"),
        ("get", "/executions"),
        ("post", "/executions/bulk"),
        ("get", "/executions/{execution_id}"),
        ("post", "/executions/{execution_id}/cancel"),
        ("get", "/workers"),
        ("get", "/workers/{worker_id}"),
        ("get", "/workers/{worker_id}/events"),
        ("post", "/workers/{worker_id}/cordon"),
        ("post", "/workers/{worker_id}/uncordon"),
        ("post", "/workers/{worker_id}/drain"),
        ("post", "/workers/{worker_id}/retire"),
        ("get", "/dlq"),
        ("post", "/dlq"),
        ("get", "/dlq/entry/{dlq_entry_uuid}"),
        ("get", "/dlq/task/{task_uuid}"),
        ("get", "/dlq/stats"),
        ("get", "/dlq/investigation-queue"),
        ("get", "/dlq/staleness"),
        ("get", "/analytics/performance"),
        ("get", "/analytics/bottlenecks"),
        ("patch", "/dlq/entry/{dlq_entry_uuid}"),
        ("get", "/tasks"),
        ("get", "/tasks/{task_uuid}"),
        ("post", "/tasks"),
        ("delete", "/tasks/{task_uuid}"),
        ("patch", "/tasks/{task_uuid}/workflow_steps/{step_uuid}"),
        ("get", "/tasks/{task_uuid}/graph"),
        ("get", "/tasks/{task_uuid}/audit"),
        ("get", "/tasks/{task_uuid}/workflow_steps"),
        ("get", "/tasks/{task_uuid}/workflow_steps/{step_uuid}"),
        ("get", "/tasks/{task_uuid}/workflow_steps/{step_uuid}/audit"),
        ("get", "/templates"),
        ("post", "/templates"),
        ("get", "/templates/{namespace}/{name}/{version}"),
        ("get", "/actions"),
        ("get", "/actions/{ref}"),
        ("get", "/health/live"),
        ("get", "/health/ready"),
    }


@pytest.mark.parametrize(
    ("method", "path"), [(m, p) for m, p, _ in _documented() if "/health/" not in p]
)
def test_documented_route_refuses_without_a_token(method, path):
    path = path.removeprefix(BASE).replace("{", "").replace("}", "")
    response = getattr(Caller(None), method)(path)
    assert response.status_code == 401
    assert response["WWW-Authenticate"].startswith("Bearer")


@pytest.mark.parametrize(("method", "path", "operation"), _documented())
def test_documentation_is_complete(method, path, operation):
    assert operation["summary"]
    assert operation["description"]
    assert operation["tags"]
    for status, response in operation["responses"].items():
        kind = "application/json" if status < 400 else "application/problem+json"
        assert response["content"][kind]["schema"]
    if "/health/" not in path:
        assert operation["security"] == [{"BearerToken": []}]
        assert {401, 500, 503} <= operation["responses"].keys()
    if method in ("post", "patch") and not path.endswith("/cancel"):
        assert "application/json" in operation["requestBody"]["content"]


@pytest.mark.parametrize(
    "header",
    [
        "Bearer", "Bearer ", "Basic {}", "Token {}", "{}", "Bearer x{}", "Bearer {}x",
        "Bearer mst_é", "Bearer \xff\xfe", "bearer,{}",
    ],
)  # fmt: skip
def test_other_authorization_is_refused(token, header):
    client = Client(headers={"authorization": header.format(token)})
    response = client.get(f"{BASE}/executions")
    assert response.status_code == 401
    assert response["Content-Type"] == "application/problem+json"
    assert token not in response.content.decode()


def test_scheme_is_read_in_any_case(token):
    assert (
        Client(headers={"authorization": f"bearer {token}"}).get(f"{BASE}/workers").status_code
        == 200
    )


def test_revoked_and_expired_tokens_are_refused(caller):
    assert caller.get("/workers").status_code == 200
    ApiToken.objects.update(expires_at=clock.now())
    assert 'error="invalid_token"' in caller.get("/workers")["WWW-Authenticate"]
    ApiToken.objects.update(expires_at=None, revoked_at=clock.now())
    assert caller.get("/workers").status_code == 401


def test_session_of_a_staff_user_opens_nothing(client, admin_user):
    client.force_login(admin_user)
    assert client.get(f"{BASE}/executions").status_code == 401


def test_caller_without_a_token_is_refused_before_the_body_is_looked_at():
    assert Caller(None).send("/executions", b"\xff" * 100).status_code == 401


# --- errors ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["/nothing", "/executions/", "/executions/x/y/z", "/docs/x", "/%00"]
)
def test_unknown_route_is_a_problem(caller, path):
    assert caller.get(path).status_code == 404
    assert caller.post(path, {}).status_code == 404


@pytest.mark.parametrize("method", ["put", "patch", "delete", "options", "trace"])
def test_wrong_method_is_a_problem_and_says_which_are_right(caller, method):
    response = getattr(caller.client, method)(f"{BASE}/executions")
    assert response.status_code == 405
    assert response["Content-Type"] == "application/problem+json"
    assert {"GET", "POST"} == set(response["Allow"].split(", "))


def test_head_answers_like_get(caller):
    assert caller.client.head(f"{BASE}/workers").status_code == 200


def test_unexpected_fault_says_nothing_of_the_inside(caller, action, monkeypatch, caplog):
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("the password is swordfish")

    monkeypatch.setattr(executions, "request", fail)
    with override_settings(DEBUG=True):
        response = caller.post("/executions", {"action_ref": "core.echo"})
    assert response.status_code == 500
    assert "swordfish" not in response.content.decode()
    assert "swordfish" in caplog.text


@pytest.mark.parametrize(
    "place", ["orchestrator.core.clock.now", "orchestrator.core.executions.request"]
)
def test_database_that_is_down_is_503(caller, action, monkeypatch, place):
    def fail(*_: Any, **__: Any) -> None:
        raise OperationalError("connection refused by 10.0.0.1")

    monkeypatch.setattr(place, fail)
    response = caller.post("/executions", {"action_ref": "core.echo"})
    assert response.status_code == 503
    assert "Retry-After" in response
    assert "10.0.0.1" not in response.content.decode()


# --- documentation and health ------------------------------------------------------------------


def test_docs_need_nothing_from_another_host(client):
    page = client.get(f"{BASE}/docs")
    assert page.status_code == 200
    assert b"http://" not in page.content
    assert b"https://" not in page.content
    assert b"/static/ninja/" in page.content
    script = client.get("/static/ninja/swagger-ui-bundle.js")
    assert script.status_code == 200
    script.close()


def test_index_leads_to_the_docs(client):
    assert client.get(f"{BASE}/")["Location"] == f"{BASE}/docs"


@pytest.mark.parametrize("name", ["live", "ready"])
def test_probes_answer_where_they_are_looked_for(client, name):
    answers = [client.get(f"{root}/health/{name}") for root in ("", BASE)]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert answers[0].json() == answers[1].json()
    assert client.post(f"/health/{name}").status_code == 405


def test_live_asks_no_server(client, django_assert_num_queries):
    with django_assert_num_queries(0):
        assert client.get(f"{BASE}/health/live").json() == {"status": "live"}


def test_host_that_is_not_ours_is_a_problem(client):
    response = client.get(f"{BASE}/workers", headers={"host": "evil.example"})
    assert response.status_code == 400
    assert response["Content-Type"] == "application/problem+json"
    page = client.get("/admin/", headers={"host": "evil.example"})
    assert page["Content-Type"].startswith("text/html")


# --- servers that are away ---------------------------------------------------------------------


@pytest.fixture(params=["closed", "silent"])
def broker_away(request, settings, monkeypatch) -> Iterator[None]:
    """A broker that refuses connections, and one that takes them and never says a word."""
    settings.MUSTER = dataclasses.replace(settings.MUSTER, publish_timeout_seconds=0.3)
    publisher.errors.cache_clear()
    monkeypatch.setattr(publisher, "_relay", None)
    monkeypatch.setattr(health, "_broker", health.Probe(health._broker_answers))
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        if request.param == "closed":
            server.close()
        settings.BROKER_URL = f"amqp://guest:guest@127.0.0.1:{port}//"
        yield
        assert publisher.flush(20)  # before the port is another's
    publisher.errors.cache_clear()


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
@pytest.mark.usefixtures("database")  # one that is not emptied: a history cannot be
def test_request_is_accepted_at_once_without_a_broker(broker_away, caller, action):
    took_seconds = []
    for _ in range(3):
        begun = time.monotonic()
        response = caller.post("/executions", {"action_ref": "core.echo"})
        assert response.status_code == 201
        took_seconds.append(time.monotonic() - begun)
    assert min(took_seconds) < 0.25
    assert max(took_seconds) < 1  # waiting for the silent one takes longer than that
    assert Execution.objects.filter(status="requested").count() == 3


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
@pytest.mark.usefixtures("database")  # one that is not emptied: a history cannot be
def test_cancel_answers_at_once_without_a_broker(broker_away, caller, request_one):
    execution = request_one()
    begun = time.monotonic()
    assert caller.post(f"/executions/{execution.pk}/cancel").status_code == 202
    assert time.monotonic() - begun < 1


def test_ready_says_that_the_broker_is_away_and_is_ready_all_the_same(broker_away, client):
    begun = time.monotonic()
    response = client.get(f"{BASE}/health/ready")
    assert (response.status_code, response.json()["broker"]) == (200, "unreachable")
    assert time.monotonic() - begun < health.PATIENCE_SECONDS + 1


@pytest.mark.parametrize("database", [lambda: False, lambda: threading.Event().wait(1)])
def test_not_ready_without_a_database_that_answers(client, monkeypatch, database):
    monkeypatch.setattr(health, "PATIENCE_SECONDS", 0.2)
    monkeypatch.setattr(health, "_database", health.Probe(database))
    monkeypatch.setattr(health, "_broker", health.Probe(lambda: True))
    begun = time.monotonic()
    response = client.get(f"{BASE}/health/ready")
    assert (response.status_code, response["Retry-After"]) == (503, "5")
    assert response["Content-Type"] == "application/problem+json"
    assert time.monotonic() - begun < 0.9


def test_servers_are_asked_once_however_many_ask():
    questions = iter([True])
    probe = health.Probe(lambda: next(questions))
    assert all(probe.ask().result(1) for _ in range(20))
