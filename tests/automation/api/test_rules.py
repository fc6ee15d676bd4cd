"""Rules, triggers and enforcements over the API."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.automation import rules
from orchestrator.automation.models import Event, Rule
from orchestrator.core.models import Pack
from orchestrator.core.redaction import REDACTED
from tests import principals
from tests.automation import play
from tests.core.api.client import Caller, pointers
from tests.factories import NOW, make_action
from tests.principals import given

pytestmark = pytest.mark.usefixtures("db", "sent")

RULE: dict[str, Any] = {
    "trigger": {"type": "shop.order"},
    "criteria": {"trigger.number": {"type": "gt", "pattern": 5}},
    "action": {"ref": "core.echo", "parameters": {"text": "{{ trigger.number }}"}},
    "suppress": {"seconds": 60},
}
NEW = RULE | {"ref": "shop.ship"}


@pytest.fixture(autouse=True)
def _installed(db: None) -> None:
    play.make_type()
    make_action()


def test_rule_is_created_once_and_belongs_to_its_caller(caller: Caller) -> None:
    first = caller.post("/rules", NEW)
    assert (first.status_code, first["Location"]) == (201, "/api/v1/rules/shop.ship")
    assert first.json()["options"] == {"suppress": {"seconds": 60}}
    assert first.json()["owner"] == str(rules.find("shop.ship").owner)
    assert caller.post("/rules", NEW).status_code == 200
    other = caller.post("/rules", NEW | {"priority": 5})
    assert (other.status_code, other.json()["type"]) == (409, "urn:muster:problem:rule-exists")
    assert rules.find("shop.ship").current.number == 1


def test_rule_is_replaced_retired_and_in_use_again(caller: Caller) -> None:
    assert caller.put("/rules/shop.ship", RULE).status_code == 201
    changed = caller.put("/rules/shop.ship", RULE | {"type": "backstop"}).json()
    assert (changed["revision"], changed["options"]["backstop"]) == (2, True)
    assert caller.delete("/rules/shop.ship").json()["retired_at"] is not None
    assert caller.delete("/rules/shop.ship").status_code == 200
    assert caller.get("/rules").json()["items"] == []
    assert len(caller.get("/rules", retired=True).json()["items"]) == 1
    assert caller.post("/rules", NEW).status_code == 200
    assert rules.find("shop.ship").is_enabled


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"ref": "Ship"}, "/ref"),
        ({"trigger": {"type": "shop.x"}}, "/trigger/type"),
        ({"trigger": {"type": "core.cron", "parameters": {"cron": "x"}}},
         "/trigger/parameters/cron"),
        ({"criteria": {"trigger.a": {"type": "like"}}}, "/criteria/trigger.a/type"),
        ({"action": {"ref": "core.ecko"}}, "/action/ref"),
        ({"priority": 1000}, "/priority"),
        ({"type": "x"}, "/type"),
        ({"supress": {}}, "/supress"),
    ],
)  # fmt: skip
def test_rule_is_refused_with_the_place_of_the_problem(
    caller: Caller, change: dict[str, Any], place: str
) -> None:
    answer = caller.post("/rules", NEW | change)
    assert (answer.status_code, pointers(answer)) == (422, [place])
    assert not Rule.objects.exists()


@pytest.mark.parametrize("method", ["post", "put"])
def test_rule_that_is_tried_out_is_checked_and_changes_nothing(caller: Caller, method: str) -> None:
    path, body = ("/rules", NEW) if method == "post" else ("/rules/shop.ship", RULE)
    tried = getattr(caller, method)(f"{path}?dry_run=true", body)
    assert (tried.status_code, tried.json()["revision"]) == (200, 1)
    assert not Rule.objects.exists()
    wrong = getattr(caller, method)(f"{path}?dry_run=true", body | {"priority": 1000})
    assert pointers(wrong) == ["/priority"]
    play.make_rule()
    if method == "put":
        changed = caller.put(f"{path}?dry_run=true", RULE).json()
        assert (changed["revision"], changed["criteria"]) == (2, RULE["criteria"])
        assert rules.find("shop.ship").current.number == 1


def test_revisions_of_a_rule_are_listed_newest_first(caller: Caller) -> None:
    for priority in (1, 2, 3):
        secret = {"ref": "core.echo", "parameters": {"text": "x", "password": "hunter2"}}
        caller.put("/rules/shop.ship", RULE | {"priority": priority, "action": secret})
    first = caller.get("/rules/shop.ship/revisions", limit=2).json()
    assert [(each["number"], each["options"]["priority"]) for each in first["items"]] == [
        (3, 3), (2, 2),
    ]  # fmt: skip
    assert first["items"][0]["parameters"] == {"text": "x", "password": REDACTED}
    rest = caller.get("/rules/shop.ship/revisions", cursor=first["next_cursor"]).json()
    assert [each["number"] for each in rest["items"]] == [1]
    assert rest["next_cursor"] is None
    play.make_rule("shop.other")
    assert len(caller.get("/rules/shop.other/revisions").json()["items"]) == 1
    assert caller.get("/rules/shop.x/revisions").status_code == 404


def test_rule_of_a_pack_is_switched_and_nothing_else(caller: Caller) -> None:
    new = rules.NewRule(ref="shop.ship", trigger_type="shop.order", action_ref="core.echo")
    rules.install(new, pack=Pack.objects.get(name="shop"), now=NOW)
    assert caller.put("/rules/shop.ship", RULE).status_code == 409
    assert caller.delete("/rules/shop.ship").status_code == 409
    assert caller.post("/rules/shop.ship/disable").json()["is_enabled"] is False
    assert caller.get("/rules", enabled=True).json()["items"] == []
    assert caller.post("/rules/shop.ship/enable").json()["enabled_override"] is True
    assert len(caller.get("/rules", enabled=True, pack="shop").json()["items"]) == 1


def test_rule_is_tested_leaf_by_leaf_and_nothing_is_recorded(caller: Caller) -> None:
    caller.post("/rules", NEW)
    answer = caller.post("/rules/shop.ship/test", {"payload": {"number": 7}}).json()
    assert (answer["matched"], answer["parameters"]) == (True, {"text": 7})
    (leaf,) = answer["criteria"]
    assert (leaf["path"], leaf["value"], leaf["answer"]) == ("trigger.number", 7, True)
    assert not Event.objects.exists()
    [id] = play.record(3)
    past = caller.post("/rules/shop.ship/test", {"event_id": str(id)}).json()
    assert (past["matched"], past["parameters"]) == (False, None)
    assert caller.post("/rules/shop.ship/test", {}).status_code == 422


def test_past_event_is_tested_without_showing_its_payload(caller: Caller) -> None:
    caller.post("/rules", NEW)
    [id] = play.record(7)
    viewer = principals.caller("viewer", given("viewer"))
    answer = viewer.post("/rules/shop.ship/test", {"event_id": str(id)}).json()
    assert (answer["matched"], answer["parameters"]) == (True, None)
    assert answer["criteria"][0]["value"] == REDACTED


def test_callers_change_rules_only_where_they_may() -> None:
    play.make_rule()
    other = principals.caller("other", given("author", packs=["mail", "core"]))
    assert other.post("/rules", NEW).status_code == 403
    assert other.put("/rules/shop.ship", RULE).status_code == 403
    assert other.get("/rules/shop.ship").status_code == 404
    assert other.post("/rules/shop.ship/test", {"payload": {}}).status_code == 404
    assert other.post("/rules/shop.ship/disable").status_code in (403, 404)
    assert other.delete("/rules/shop.ship").status_code == 404
    assert rules.find("shop.ship").current.number == 1
    viewer = principals.caller("viewer", given("viewer"))
    assert viewer.post("/rules/shop.ship/disable").status_code == 403


def test_triggers_and_their_types_are_listed_and_shown(caller: Caller) -> None:
    timer = play.make_trigger("core.cron", cron="0 5 * * *")
    refs = [each["ref"] for each in caller.get("/trigger-types").json()["items"]]
    assert refs == sorted(refs)
    assert {"core.cron", "shop.order"} <= set(refs)
    assert caller.get("/trigger-types/shop.order").json()["payload_schema"] == play.SCHEMA
    assert caller.get("/trigger-types/shop.x").status_code == 404
    (listed,) = caller.get("/triggers", type="core.cron").json()["items"]
    assert listed == caller.get(f"/triggers/{timer.pk}").json()
    assert len(caller.get(f"/triggers/{timer.pk}/next", count=3).json()["items"]) == 3
    assert caller.get("/triggers/999999").status_code == 404


def test_enforcements_are_listed_with_filters_and_shown(caller: Caller) -> None:
    play.make_rule()
    [row] = play.answer(7)
    shown = caller.get(f"/enforcements/{row.pk}").json()
    assert (shown["rule"], shown["state"]) == ("shop.ship", "executed")
    for query, count in (
        ({"rule": "shop.ship"}, 1), ({"rule": "shop.x"}, 0), ({"event_id": row.event_id}, 1),
        ({"execution_id": row.execution_id}, 1), ({"state": "rejected"}, 0), ({"open": True}, 0),
    ):  # fmt: skip
        assert len(caller.get("/enforcements", **query).json()["items"]) == count, query
    other = principals.caller("other", given("viewer", packs=["mail"]))
    assert other.get("/enforcements").json()["items"] == []
    assert other.get(f"/enforcements/{row.pk}").status_code == 404
