"""Events over the API: reported once for each key, refused whole, listed, replayed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from orchestrator.automation import recording
from orchestrator.automation.models import Event
from orchestrator.core import cursors
from orchestrator.core.redaction import REDACTED
from tests import principals
from tests.automation import play
from tests.core.api.client import Caller, pointers
from tests.principals import given

pytestmark = pytest.mark.usefixtures("db", "sent")

ORDER: dict[str, Any] = {"trigger": {"type": "shop.order"}, "payload": {"number": 1}}


def test_event_is_recorded_once_for_each_key(caller: Caller) -> None:
    play.make_type()
    first = caller.post("/events", ORDER | {"key": "a", "occurred_at": "2030-01-31T12:00:00Z"})
    again = caller.post("/events", ORDER | {"key": "a"})
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json() == {"id": first.json()["id"], "is_new": False}
    shown = caller.get(first["Location"].removeprefix(caller.base)).json()
    assert (shown["type"], shown["source"], shown["key"]) == ("shop.order", "api", "a")
    assert shown["occurred_at"] == "2030-01-31T12:00:00Z"


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"trigger": {"type": "shop.ordr"}}, "/trigger/type"),
        ({"trigger": {"type": "shop.order", "parameters": {"a": 1}}}, "/trigger"),
        ({"trigger": {"type": "core.cron"}}, "/trigger/parameters"),
        ({"payload": {"number": "x"}}, "/payload/number"),
        ({"key": "muster:1"}, "/key"),
        ({"key": ""}, "/key"),
        ({"kye": "a"}, "/kye"),
        ({"occurred_at": 5}, "/occurred_at"),
        ({"payload": {"text": "x" * 300_000}}, "/payload"),
    ],
)
def test_event_is_refused_with_its_place(
    caller: Caller, change: dict[str, Any], pointer: str
) -> None:
    play.make_type()
    for path, body, place in (
        ("/events", ORDER | change, pointer),
        ("/events/bulk", {"events": [ORDER, ORDER | change]}, f"/events/1{pointer}"),
    ):
        answer = caller.post(path, body)
        assert (answer.status_code, pointers(answer)) == (422, [place])
    assert not Event.objects.exists()


def test_more_events_than_executors_can_answer_are_refused_and_executions_are_not(
    caller: Caller, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "_backlog", recording._Backlog())
    monkeypatch.setattr(recording, "COUNTED_EVERY_SECONDS", -1.0)
    settings.MUSTER = replace(settings.MUSTER, events_backlog_limit=2)
    play.make_rule()
    for _ in range(3):
        assert caller.post("/events", ORDER).status_code == 201
    for path, body in (("/events", ORDER), ("/events/bulk", {"events": [ORDER]})):
        refused = caller.post(path, body)
        assert (refused.status_code, refused["Retry-After"]) == (503, "5")
        assert refused.json()["type"] == "urn:muster:problem:too-many-events"
    assert caller.post("/executions", {"action_ref": "core.echo"}).status_code == 201
    play.match(Event.objects.values_list("pk", flat=True))
    assert caller.post("/events", ORDER).status_code == 201


def test_many_events_are_recorded_in_order_and_repeated_keys_are_one(caller: Caller) -> None:
    play.make_type()
    keys = ["a", "b", "a", None]
    body = {"events": [ORDER | {"key": key} for key in keys]}
    accepted = caller.post("/events/bulk", body).json()["events"]
    assert [each["is_new"] for each in accepted] == [True, True, False, True]
    assert accepted[0]["id"] == accepted[2]["id"]
    assert Event.objects.count() == 3


def test_number_of_events_in_one_request_is_limited(caller: Caller, settings: Any) -> None:
    play.make_type()
    settings.MUSTER = replace(settings.MUSTER, bulk_limit=1)
    assert pointers(caller.post("/events/bulk", {"events": [ORDER, ORDER]})) == ["/events"]


def test_events_are_listed_newest_first_with_filters(caller: Caller) -> None:
    ids = [str(id) for id in play.record(1, 2, 3)]
    assert [each["id"] for each in caller.get("/events").json()["items"]] == ids[::-1]
    page = caller.get("/events", limit=2, type="shop.order").json()
    rest = caller.get(page["next"].removeprefix(caller.base)).json()
    assert [each["id"] for each in page["items"] + rest["items"]] == ids[::-1]
    for query, count in (
        ({"key": "order 2"}, 1), ({"evaluated": True}, 0), ({"evaluated": False}, 3),
        ({"source": "timer"}, 0), ({"received_before": "2020-01-01T00:00:00Z"}, 0),
    ):  # fmt: skip
        assert len(caller.get("/events", **query).json()["items"]) == count, query
    assert pointers(caller.get("/events", tpye="x")) == ["?tpye"]


def test_filter_without_an_index_looks_at_a_bounded_number_of_the_rows_of_another(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cursors, "LOOKED_AT_LIMIT", 2)
    trigger = play.make_trigger()
    first, *_ = (str(id) for id in play.record(1, 2, 3))
    Event.objects.filter(pk=first).update(source="timer")
    play.record(9, trigger=play.make_trigger("shop.return"))
    page = caller.get("/events", trigger_id=trigger.pk, source="timer").json()
    assert page["items"] == []
    rest = caller.get(page["next"].removeprefix(caller.base)).json()
    assert ([each["id"] for each in rest["items"]], rest["next"]) == ([first], None)
    # a key leads to one event of a trigger
    page = caller.get("/events", trigger_id=trigger.pk, key="order 1").json()
    assert [each["id"] for each in page["items"]] == [first]


def test_state_of_enforcements_is_looked_for_in_a_bounded_number_of_those_of_a_rule(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cursors, "LOOKED_AT_LIMIT", 2)
    play.make_rule()
    rows = play.match(play.record(1, 2, 3))
    play.enforce(rows[:1])
    query = {"rule": "shop.ship", "state": "executed"}
    page = caller.get("/enforcements", **query).json()
    assert page["items"] == []
    rest = caller.get(page["next"].removeprefix(caller.base)).json()
    assert ([each["id"] for each in rest["items"]], rest["next"]) == ([str(rows[0].pk)], None)
    assert caller.get("/enforcements", rule="shop.none").json()["items"] == []


def test_event_is_replayed_for_one_rule(caller: Caller) -> None:
    play.make_rule()
    play.make_rule("shop.bill")
    [id] = play.record(7)
    answer = caller.post(f"/events/{id}/replay", {"rule": "shop.bill"})
    assert answer.status_code == 201
    again = caller.get(answer["Location"].removeprefix(caller.base)).json()
    assert (again["source"], again["payload"]) == ("replay", {"number": 7})
    assert caller.post(f"/events/{id}/replay").status_code == 201
    caller.post("/rules/shop.bill/disable")
    refused = caller.post(f"/events/{id}/replay", {"rule": "shop.bill"})
    assert (refused.status_code, refused.json()["type"]) == (
        409, "urn:muster:problem:rule-is-disabled",
    )  # fmt: skip
    assert caller.post(f"/events/{id}/replay", {"rule": "shop.x"}).status_code == 404


def test_callers_send_and_see_events_only_where_they_may() -> None:
    [id] = play.record(1)
    other = principals.caller("other", given("operator", packs=["mail"]))
    assert other.post("/events", ORDER).status_code == 403
    assert other.get(f"/events/{id}").status_code == 404
    assert other.post(f"/events/{id}/replay").status_code == 404
    assert other.get("/events").json()["items"] == []
    viewer = principals.caller("viewer", given("viewer"))
    assert viewer.post("/events", ORDER).status_code == 403
    assert viewer.get(f"/events/{id}").json()["payload"] == REDACTED
    assert Event.objects.count() == 1
