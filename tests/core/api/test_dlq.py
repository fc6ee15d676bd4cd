"""Investigations: opened, annotated, closed."""

from __future__ import annotations

import base64
import uuid
from typing import Any
from urllib.parse import urlencode

import pytest

from orchestrator.core import cursors
from orchestrator.core.models.dead_letters import Grouping
from tests import principals
from tests.core.api.client import BASE, Caller, pointers
from tests.factories import NOW, make_dlq_entry
from tests.principals import given

pytestmark = pytest.mark.django_db


def test_dlq_entries(caller, request_one):
    execution = request_one()
    first = make_dlq_entry(about=execution)
    second = make_dlq_entry(
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
    make_dlq_entry()
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


@pytest.fixture
def letters() -> list[str]:
    """The ids of three letters of two actions, in two queues, and of one that is about nothing."""
    origins = [("w1", "shop.sell"), ("w2", "shop.sell"), ("w2", "core.echo"), ("w2", "")]
    return [
        str(
            make_dlq_entry(
                original_queue=queue,
                subject_kind="execution" if name else "",
                subject_name=name,
            ).dlq_entry_uuid
        )
        for queue, name in origins
    ]


def stats(caller: Caller, **query: Any) -> list[dict[str, Any]]:
    """What both faces answer."""
    items: list[dict[str, Any]] = caller.get("/dlq/stats", **query).json()["items"]
    plain = caller.client.get("/v1/dlq/stats", query).json()
    assert plain == items
    return items


def test_stats_are_grouped_as_the_caller_asks(caller, letters):
    (by_reason,) = stats(caller)
    assert by_reason["pending"] == 4
    by_subject = stats(caller, by="subject")
    assert [(row["subject_kind"], row["subject_name"], row["pending"]) for row in by_subject] == [
        ("execution", "shop.sell", 2), ("", "", 1), ("execution", "core.echo", 1),
    ]  # fmt: skip
    by_queue = stats(caller, by="queue")
    assert [(row["original_queue"], row["pending"]) for row in by_queue] == [("w2", 3), ("w1", 1)]
    assert set(by_subject[0]) == {*by_reason, "subject_kind", "subject_name"}
    assert set(by_queue[0]) == {*by_reason, "original_queue"}
    assert stats(caller, by="queue", limit=1) == by_queue[:1]
    (by_namespace,) = stats(caller, by="namespace")
    assert (by_namespace["namespace_name"], by_namespace["pending"]) == ("", 4)
    assert set(by_namespace) == {*by_reason, "namespace_name"}
    (by_hour,) = stats(caller, by="hour")
    assert (by_hour["hour"], by_hour["pending"]) == ("2026-03-01T12:00:00Z", 4)
    assert set(by_hour) == {*by_reason, "hour"}
    assert stats(caller, limit=1) == [by_reason]


def test_letters_are_listed_and_counted_by_queue_and_name(caller, letters):
    def found(**query: Any) -> list[int]:
        items = caller.get("/dlq", **query).json()["items"]
        plain = caller.client.get("/v1/dlq", query).json()
        ids = [item["dlq_entry_uuid"] for item in items]
        assert [item["dlq_entry_uuid"] for item in plain] == ids
        for by in ({}, *({"by": each} for each in Grouping)):
            assert sum(row["total_entries"] for row in stats(caller, **query, **by)) == len(ids)
        return sorted(map(letters.index, ids))

    assert found(original_queue="w2") == [1, 2, 3]
    assert found(original_queue="w") == []
    assert found(subject_name="shop.sell") == [0, 1]
    assert found(subject_name="shop.sell", original_queue="w2") == [1]
    assert found(subject_name="") == [3]
    assert found(original_queue="w2", opened_before=NOW.isoformat()) == []


@pytest.mark.parametrize("base", ["/api/v1", "/v1"])
@pytest.mark.parametrize(
    ("query", "wrong"),
    [({"by": "worker"}, "?by"), ({"by": ""}, "?by"), ({"by": "queue", "limit": 0}, "?limit")],
)
def test_stats_that_are_grouped_by_nothing_known_are_refused(token, base, query, wrong):
    response = Caller(token, base=base).get("/dlq/stats", **query)
    assert (response.status_code, pointers(response)) == (422, [wrong])


def test_grouped_stats_count_only_what_the_caller_may_see(letters):
    narrow = principals.caller("narrow", given("viewer", packs=["shop"]))
    (sold,) = stats(narrow, by="subject")
    assert (sold["subject_name"], sold["total_entries"]) == ("shop.sell", 2)
    assert [row["total_entries"] for row in stats(narrow, by="queue")] == [1, 1]
    assert stats(narrow, by="queue", subject_name="core.echo") == []


CLOSED: dict[str, Any] = {
    "resolution_status": "manually_resolved",
    "resolved_at": NOW,
    "resolved_by": "ada",
}


@pytest.mark.parametrize(
    ("query", "sizes"),
    [
        ({"resolution_status": "manually_resolved"}, [1, 0, 0, 1]),
        ({"dlq_reason": "poison"}, [1, 0, 0, 1]),
        ({"dlq_reason": "poison", "offset": 1}, [1]),
        ({"original_queue": "w1"}, [1, 0, 0, 1]),
        ({"subject_name": "shop.sell"}, [1, 0, 0, 1]),
        ({"resolution_status": "pending"}, [5]),
        ({}, [7]),
    ],
)
def test_rare_entries_are_found_by_pages_that_look_at_a_bounded_number_of_rows(
    caller, monkeypatch, query, sizes
):
    monkeypatch.setattr(cursors, "LOOKED_AT_LIMIT", 2)
    rare = {"dlq_reason": "poison", "original_queue": "w1", "subject_name": "shop.sell", **CLOSED}
    make_dlq_entry(**rare)
    for _ in range(4):
        make_dlq_entry()
    make_dlq_entry(**rare)
    make_dlq_entry()
    seen, path = [], f"{BASE}/dlq?{urlencode(query)}"
    while path:
        page = caller.get(path.removeprefix(BASE)).json()
        seen.append(len(page["items"]))
        path = page["next"]
    assert seen == sizes


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


def test_name_in_a_change_is_kept_beside_the_caller_who_gave_it(caller):
    path = f"/dlq/entry/{make_dlq_entry().dlq_entry_uuid}"
    assert (caller.get(path).json()["updated_at"], caller.get(path).json()["notes"]) == (None, [])
    first = {"metadata": {"root_cause": "timeout"}, "resolved_by": "ada@example.com"}
    noted = caller.patch(path, first).json()
    last = {
        "resolution_status": "manually_resolved",
        "resolution_notes": "mended",
        "resolved_by": "bob@example.com",
    }
    closed = caller.patch(path, last).json()
    shown = [(note["by"], note["on_behalf_of"], note["text"]) for note in closed["notes"]]
    assert shown == [("ci", "ada@example.com", ""), ("ci", "bob@example.com", "mended")]
    assert (closed["resolved_by"], closed["resolution_notes"]) == ("ci", "mended")
    assert closed["created_at"] == closed["dlq_timestamp"]
    assert noted["updated_at"] < closed["updated_at"] == closed["resolved_at"]


@pytest.mark.parametrize(
    ("body", "wrong"),
    [
        ({}, ""),
        ({"resolution_status": "pending"}, ""),
        ({"resolution_status": "solved"}, "/resolution_status"),
        ({"resolved_by": "someone else"}, ""),
        ({"resolved_by": "some\none", "note": "n"}, "/resolved_by"),
        ({"note": "n", "resolution_notes": "n"}, ""),
        ({"notes": []}, "/notes"),
        ({"metadata": []}, "/metadata"),
    ],
)
def test_change_of_a_dlq_entry_that_makes_no_sense_is_refused(caller, body, wrong):
    entry = make_dlq_entry()
    assert pointers(caller.patch(f"/dlq/entry/{entry.dlq_entry_uuid}", body)) == [wrong]
    entry.refresh_from_db()
    assert (entry.resolution_status, entry.notes, entry.metadata) == ("pending", [], {})
