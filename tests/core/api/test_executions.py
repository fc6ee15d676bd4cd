"""Executions: listed, one with its history, cancelled."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

import pytest
from django.db import OperationalError
from django.db.models.sql.compiler import SQLCompiler

from orchestrator.core import clock, cursors, executions, search
from orchestrator.core.models import Execution
from orchestrator.core.models.catalog import ActionQuerySet
from orchestrator.core.shown import executions as shown
from orchestrator.core.state_machine import TransitionConflict, transition
from tests import principals
from tests.core.api.client import BASE, pointers
from tests.factories import NOW, make_execution
from tests.principals import ROOT, given

pytestmark = pytest.mark.django_db


# --- list -----------------------------------------------------------------------------------------


def test_who_sees_no_worker_learns_of_none_by_a_filter(worker):
    blind = principals.caller("blind", given("executions.read", packs=["core"]))
    for name in ("w1", "nope", worker.pk, 9_999):
        for query in (f"worker={name}", f"q=worker:{name}"):
            response = blind.get(f"/executions?{query}")
            assert (response.status_code, response.json()["items"]) == (200, [])


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


@pytest.mark.parametrize(
    "query",
    [{"worker": "w1"}, {"reason": "worker_lost"}, {"status": ["abandoned"]}, {"open": "false"}],
)
def test_a_rare_value_is_found_by_pages_that_look_at_a_bounded_number_of_rows(
    caller, action, worker, monkeypatch, query
):
    monkeypatch.setattr(cursors, "LOOKED_AT_LIMIT", 2)
    found = [make_execution("abandoned", action=action, worker=worker, now=NOW)]
    made = [make_execution("requested", action=action, now=NOW) for _ in range(4)]
    found.append(make_execution("abandoned", action=action, worker=worker, now=NOW))
    made.append(make_execution("requested", action=action, now=NOW))
    seen, path, sizes = [], f"{BASE}/executions?{urlencode(query, doseq=True)}", []
    while path:
        page = caller.get(path.removeprefix(BASE)).json()
        seen += [item["id"] for item in page["items"]]
        path = page["next"]
        sizes.append(len(page["items"]))
    assert seen == [str(row.pk) for row in reversed(found)]
    assert sizes == ([2] if "open" in query else [1, 0, 0, 1])


def test_a_list_says_the_name_of_each_worker(caller, action, worker):
    make_execution("running", action=action, worker=worker, now=NOW)
    make_execution("requested", action=action, now=NOW)
    items = caller.get("/executions").json()["items"]
    assert [(item["worker_id"], item["worker"]) for item in items] == [
        (None, None),
        (worker.pk, "w1"),
    ]


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


@pytest.mark.usefixtures("still_clock")
@pytest.mark.parametrize(("status", "statements"), [("completed", 5), ("requested", 6)])
def test_one_takes_few_queries(
    caller, action, worker, django_assert_num_queries, status, statements
):
    """Token, row, history, dead letters, audit; for one that no worker has got, also whether it
    waits for an answer."""
    execution = make_execution(status, action=action, worker=worker, now=NOW)
    caller.get(f"/executions/{execution.pk}")  # actions are known from here on
    with django_assert_num_queries(statements):
        answer = caller.get(f"/executions/{execution.pk}")
    assert answer.json()["worker"] == (execution.worker and execution.worker.name)


# --- one, and cancel ------------------------------------------------------------------------------


def test_one_that_is_read_again_composes_no_query(caller, request_one, monkeypatch):
    path = f"/executions/{request_one().pk}"
    first = caller.get(path)
    composed, compose = [], SQLCompiler.as_sql

    def noted(compiler, *args, **kwargs):
        composed.append(str(compiler.query.model))
        return compose(compiler, *args, **kwargs)

    monkeypatch.setattr(SQLCompiler, "as_sql", noted)
    again = caller.get(path)
    assert (again.json(), composed) == (first.json(), [])


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


def test_database_that_goes_before_the_answer_is_no_invalid_document(request_one, monkeypatch):
    """A decision reads few columns; the answer to it needs the others."""

    def fail(*_: Any, **__: Any) -> None:
        raise OperationalError("terminating connection due to administrator command")

    rows = Execution.objects.without_contents().select_related("action")
    execution = rows.get(pk=request_one().pk)
    monkeypatch.setattr(Execution, "refresh_from_db", fail)
    with pytest.raises(OperationalError):
        shown.whole(execution, seen_by=ROOT)


def test_database_that_goes_before_the_action_is_read_is_no_invalid_document(
    request_one, monkeypatch
):
    """A cancel reads the row alone; the answer has values of its action."""

    def fail(*_: Any, **__: Any) -> None:
        raise OperationalError("terminating connection due to administrator command")

    execution = Execution.objects.get(pk=request_one().pk)
    monkeypatch.setattr(ActionQuerySet, "known", fail)
    with pytest.raises(OperationalError):
        shown.whole(execution, seen_by=ROOT)


def test_cancel_before_it_runs_is_done_at_once(caller, request_one):
    execution = request_one()
    response = caller.post(f"/executions/{execution.pk}/cancel")
    assert (response.status_code, response.json()["status"]) == (202, "cancelled")
    history = caller.get(f"/executions/{execution.pk}").json()["history"]
    assert history[-1]["actor"] == "ci"


def test_cancel_keeps_the_reason_that_it_is_given(caller, request_one):
    execution = request_one()
    path = f"/executions/{execution.pk}/cancel"
    assert caller.post(path, {"reason": "x" * 501}).status_code == 422
    assert caller.post(path, {"why": "wrong file"}).status_code == 422
    shown = caller.post(path, {"reason": "wrong file"}).json()
    assert shown["cancel_reason"] == "wrong file"
    assert shown["result"]["message"] == "by ci: wrong file"


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


# --- search ---------------------------------------------------------------------------------------


def test_search_and_filters_together_find_what_meets_both(caller, action, worker):
    rows = [make_execution("failed", action=action, worker=worker, now=NOW) for _ in range(3)]
    make_execution("completed", action=action, worker=worker, now=NOW)
    other = make_execution("failed", action=action, worker=worker, now=NOW, correlation_id="c1")
    page = caller.get("/executions", q="status:failed -c1").json()
    assert [item["id"] for item in page["items"]] == [str(row.pk) for row in reversed(rows)]
    assert page["looked_at"] == {"stopped_by": "end", "back_to": None}
    page = caller.get("/executions", q="status:failed", correlation_id="c1").json()
    assert [item["id"] for item in page["items"]] == [str(other.pk)]
    page = caller.get("/executions", q="c1", status="completed").json()
    assert (page["items"], page["looked_at"]) == ([], None)


def test_next_leads_through_all_that_a_search_finds(caller, action, monkeypatch):
    monkeypatch.setattr(cursors, "LOOKED_AT_LIMIT", 3)
    found = [make_execution("failed", action=action, now=NOW)]
    found += [make_execution(status, action=action, now=NOW) for status in ["requested"] * 4]
    found = [found[0], make_execution("failed", action=action, now=NOW)]
    seen, path = [], f"{BASE}/executions?{urlencode({'q': 'status:failed', 'limit': 1})}"
    while path:
        page = caller.get(path.removeprefix(BASE)).json()
        seen += [item["id"] for item in page["items"]]
        path = page["next"]
    assert seen == [str(row.pk) for row in reversed(found)]


def test_parameter_that_counts_once_is_refused_when_it_is_given_twice(caller, action):
    response = caller.get("/executions?limit=1&limit=2")
    assert response.status_code == 422
    assert response.json()["errors"] == [
        {"pointer": "?limit", "message": "expected once, found 2 times"}
    ]
    assert caller.get("/executions?status=failed&status=running").status_code == 200


def test_mistakes_of_a_search_are_refused_with_their_places(caller, action):
    response = caller.get("/executions", q="status:faild ran:5s")
    assert response.status_code == 422
    assert response.json()["errors"] == [
        {
            "pointer": "?q",
            "message": "no status is called 'faild', did you mean 'failed'?",
            "position": 7,
            "length": 5,
        },
        {
            "pointer": "?q",
            "message": "expected a comparison: >5s, <5s or 5s..",
            "position": 17,
            "length": 2,
        },
    ]


def test_search_that_takes_too_long_says_so(caller, monkeypatch):
    def too_long(*_: Any, **__: Any) -> None:
        raise search.SearchTookTooLong

    monkeypatch.setattr(search, "find", too_long)
    response = caller.get("/executions", q="status:failed")
    assert (response.status_code, response.json()["type"]) == (
        503,
        "urn:muster:problem:search-took-too-long",
    )


@pytest.mark.usefixtures("still_clock")
@pytest.mark.parametrize("q", ["status:failed", 'message:"it"', "param.message:hello", "core.echo"])
def test_search_is_few_statements_however_many_rows(
    caller, action, worker, django_assert_max_num_queries, q
):
    for _ in range(60):
        make_execution(
            "failed", action=action, worker=worker, result={"message": "as it is"},
            parameters={"message": "hello"},
        )  # fmt: skip
    with django_assert_max_num_queries(12):
        assert len(caller.get("/executions", q=q).json()["items"]) == 50
