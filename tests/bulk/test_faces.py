"""Bulk orders over the API and in the terminal."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.management import CommandError

from orchestrator.bulk.models import BulkOrder
from orchestrator.core.models import Execution
from tests import commands, principals
from tests.bulk import play
from tests.core.api.client import Caller
from tests.factories import make_dlq_entry
from tests.principals import given

pytestmark = pytest.mark.django_db

URL = "/bulk"
NEW = {"verb": "cancel", "query": "status:open", "reason": "too many"}

BASE = "/api/v1"

run, document, refused = commands.of("bulk")


def post(caller: Caller, path: str, body: Any) -> tuple[int, Any]:
    answer = caller.post(path, body)
    return answer.status_code, answer.json()


def get(caller: Caller, path: str) -> tuple[int, Any]:
    answer = caller.get(path.removeprefix(BASE))
    return answer.status_code, answer.json()


def test_a_dry_run_counts_and_the_order_takes_no_more_than_it_said() -> None:
    operator = principals.caller("ada", given("operator"))
    play.several(3)
    status, plan = post(operator, URL, {**NEW, "dry_run": True, "reason": ""})
    assert (status, plan["matched"], len(plan["first_ids"])) == (200, 3, 3)
    assert not BulkOrder.objects.exists()
    play.several(2)
    body = {**NEW, "up_to": plan["up_to"], "at_most": plan["matched"], "idempotency_key": "k"}
    status, order = post(operator, URL, body)
    assert (status, order["matched"], order["state"]) == (201, 3, "ordered")
    status, again = post(operator, URL, body)
    assert (status, again["id"]) == (200, order["id"])
    play.work_off(BulkOrder.objects.get())
    status, order = get(operator, f"{URL}/{order['id']}")
    assert (order["state"], order["done"], order["ordered_by"]) == ("done", 3, "ada")
    assert Execution.objects.filter(status="requested").count() == 2
    assert get(operator, URL)[1]["items"][0]["id"] == order["id"]
    assert post(operator, URL, {**NEW, "at_most": 1})[0] == 409


def test_what_was_refused_is_listed_with_its_kind_page_by_page() -> None:
    viewer = principals.caller("eve", given("viewer"))
    rows = play.several(3, "completed")
    order = play.work_off(play.order("cancel", ids=[each.pk for each in rows]))
    path = f"{URL}/{order.pk}/refusals?limit=2"
    _, page = get(viewer, path)
    assert [each["kind"] for each in page["items"]] == ["already-over"] * 2
    _, last = get(viewer, page["next"])
    assert (len(last["items"]), last["next"]) == (1, None)
    listed = {each["subject_id"] for each in [*page["items"], *last["items"]]}
    assert listed == {str(each.pk) for each in rows}


def test_stop_and_its_refusals() -> None:
    operator = principals.caller("ada", given("operator"))
    play.several(1)
    order = play.order("cancel", "status:open")
    assert post(operator, f"{URL}/{order.pk}/stop", {})[0] == 422
    status, stopped = post(operator, f"{URL}/{order.pk}/stop", {"reason": "enough"})
    assert (status, stopped["state"], stopped["end_reason"]) == (200, "stopped", "enough")
    status, problem = post(operator, f"{URL}/{order.pk}/stop", {"reason": "enough"})
    assert (status, problem["type"].rpartition(":")[2]) == (409, "already-over")


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"query": "status:faild"}, "/query"),
        ({"query": ""}, "/query"),
        ({"verb": "explode"}, "/verb"),
        ({"reason": ""}, "/reason"),
        ({"resolution": "cancelled"}, "/resolution"),
        ({"verb": "close", "query": "reason:poison"}, "/resolution"),
        ({"reason": "a\0b"}, "/reason"),
    ],
)
def test_bad_input_is_refused_at_its_place_and_orders_nothing(
    change: dict[str, str], pointer: str
) -> None:
    operator = principals.caller("ada", given("operator"))
    play.several(1)
    status, problem = post(operator, URL, {**NEW, **change})
    assert (status, problem["errors"][0]["pointer"]) == (422, pointer)
    assert not BulkOrder.objects.exists()


def test_a_scoped_operator_sees_its_own_orders_and_nobody_elses() -> None:
    scoped = principals.caller("ada", given("operator", packs=["core"]))
    play.several(2)
    other = play.order("cancel", "status:open")
    status, mine = post(scoped, URL, NEW)
    assert status == 201
    assert [each["id"] for each in get(scoped, URL)[1]["items"]] == [mine["id"]]
    assert get(scoped, f"{URL}/{other.pk}")[0] == 404
    assert post(scoped, f"{URL}/{other.pk}/stop", {"reason": "x"})[0] == 404


def test_the_command_orders_lists_shows_and_stops() -> None:
    play.several(3)
    assert "3 executions match" in run("order", "cancel", "status:open", "--dry-run")
    order = document("order", "cancel", "status:open", "--reason", "too many")
    assert (order["state"], order["matched"]) == ("ordered", 3)
    assert order["ordered_by"].startswith("cli:")
    assert commands.items("bulk", "list")[0]["id"] == order["id"]
    assert "status:open" in run("list")
    text = run("show", order["id"][:20])
    assert "0 of 3 looked at" in text
    assert document("stop", order["id"], "--reason", "enough")["state"] == "stopped"
    assert "is stopped" in refused("stop", order["id"], "--reason", "enough")
    assert "stopped" in run("show", order["id"], "--wait")


def test_investigations_are_found_by_the_queue_of_their_letter_on_each_face() -> None:
    operator = principals.caller("ada", given("operator"))
    make_dlq_entry(original_queue="mail")
    make_dlq_entry(original_queue="other")
    assert "1 investigations match" in run("order", "close", "queue:mail", "--dry-run")
    wanted = {"verb": "close", "query": "queue:mail", "dry_run": True}
    assert post(operator, URL, wanted)[1]["matched"] == 1


def test_the_command_says_what_is_wrong() -> None:
    play.several(1)
    with pytest.raises(CommandError, match="did you mean 'failed'"):
        run("order", "cancel", "status:faild", "--reason", "x")
    assert "reason of 1 to 200" in refused("order", "cancel", "status:open")
    assert "no executions match" in refused("order", "cancel", "id:ffff", "--reason", "x").lower()
    assert not BulkOrder.objects.exists()


def test_refusals_are_shown_in_the_terminal() -> None:
    (row,) = play.several(1, "completed")
    order = play.work_off(play.order("cancel", ids=[row.pk]))
    assert "already-over" in run("show", str(order.pk))
