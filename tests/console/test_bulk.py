"""Bulk orders in the console: the bar, the plan, the dialog, the receipt."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.template.loader import render_to_string
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from orchestrator.bulk import working
from orchestrator.bulk.models import BulkOrder
from orchestrator.console import bulk_bar
from orchestrator.console.look import Look
from orchestrator.core import clock
from orchestrator.core.authority import Principal
from orchestrator.core.models import Execution
from tests.bulk import play
from tests.console.costs import looking_alone
from tests.console.test_pages import html
from tests.factories import make_dlq_entry
from tests.principals import ROOT, given, principal

Person = Callable[[str], Client]

FILLED = {"verb": "cancel", "q": "status:open", "matched": "3", "reason": "too many"}


def sent(client: Client, **values: str) -> int:
    """Send the form of the dialog; returns the status of the answer."""
    form = {**FILLED, "back": reverse("console:bulk_new"), "key": str(uuid4()), **values}
    return client.post(reverse("console:bulk_do"), form).status_code


def said(client: Client) -> str:
    """What the next page says of an act."""
    page = client.get(reverse("console:bulk")).content.decode()
    found = re.search(r'<ul class="toasts" role="status">(.*?)</ul>', page, re.DOTALL)
    return re.sub(r"<[^>]+>", "", found[1]) if found else ""


def test_the_plan_counts_what_matches_and_asks_for_a_reason(admin_client: Client) -> None:
    play.several(3)
    play.several(1, "completed")
    page = html(admin_client, "bulk_new", verb="cancel", q="status:open")
    assert "<strong>3</strong> executions match now" in page
    assert page.count('<tr id="x-') == 3
    assert 'name="reason" maxlength="200" required' in page
    assert 'name="number"' not in page
    assert not BulkOrder.objects.exists()


def test_more_than_a_hundred_need_their_number_typed(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    play.several(101)
    page = html(admin_client, "bulk_new", verb="cancel", q="status:open")
    assert "Type 101, as these are more than 100" in page
    assert "91 more" in page
    for typed in ("", "10", "101x"):
        sent(admin_client, matched="101", number=typed)
        assert "Type 101" in said(admin_client)
    assert not BulkOrder.objects.exists()
    # with a number in the form that is too small, nothing happens either
    sent(admin_client, matched="7")
    assert "101 executions match now, not 7" in said(admin_client)
    sent(admin_client, matched="101", number="101")
    assert BulkOrder.objects.get().matched == 101


def test_a_search_that_cannot_be_read_is_marked_and_orders_nothing(admin_client: Client) -> None:
    page = html(admin_client, "bulk_new", verb="cancel", q="status:faild")
    assert "did you mean &#x27;failed&#x27;" in page
    assert '<dialog id="order"' not in page
    assert "Expected a search" in html(admin_client, "bulk_new", verb="cancel")
    assert "Expected the ids" in html(admin_client, "bulk_new", verb="cancel", id="x")
    assert "Expected one of" in html(admin_client, "bulk_new", verb="explode", answer=404)
    sent(admin_client, q="status:faild")
    assert "did you mean" in said(admin_client)
    assert not BulkOrder.objects.exists()


def test_without_a_reason_nothing_is_ordered(admin_client: Client) -> None:
    play.several(3)
    for reason in ("", " ", "x" * 201):
        sent(admin_client, reason=reason)
        assert "A reason of 1 to 200" in said(admin_client)
    assert not BulkOrder.objects.exists()


def test_get_orders_nothing(admin_client: Client) -> None:
    play.several(3)
    assert admin_client.get(reverse("console:bulk_do"), FILLED).status_code == 405
    assert not BulkOrder.objects.exists()


def test_run_again_pressed_twice_makes_as_many_executions_as_failed(admin_client: Client) -> None:
    failed = play.several(5, "failed")
    key = str(uuid4())
    for _ in range(2):
        sent(admin_client, verb="again", q="status:failed", matched="5", key=key)
    order = play.work_off(BulkOrder.objects.get())
    assert (order.done, order.ordered_by, order.reason) == (5, "user:admin", "too many")
    new = Execution.objects.filter(status="requested")
    assert {each.correlation_id for each in new} == {str(each.pk) for each in failed}
    assert {each.requested_by for each in new} == {"user:admin"}


def test_what_came_after_the_plan_is_not_touched(admin_client: Client) -> None:
    before = sorted(each.pk for each in play.several(3))
    play.several(2)
    sent(admin_client, up_to=str(before[-1]))
    order = play.work_off(BulkOrder.objects.get())
    assert order.matched == 3
    cancelled = Execution.objects.filter(status="cancelled").values_list("pk", flat=True)
    assert sorted(cancelled) == before


def test_ticked_rows_are_ordered_by_their_ids(admin_client: Client) -> None:
    rows = play.several(3)
    ids = [str(each.pk) for each in rows[:2]]
    url = reverse("console:bulk_new")
    page = admin_client.get(url, {"verb": "cancel", "id": ids}).content.decode()
    assert "The rows that were ticked" in page
    assert all(f'name="id" value="{id}"' in page for id in ids)
    form = {**FILLED, "q": "", "id": ids, "matched": "2", "key": "k"}
    admin_client.post(reverse("console:bulk_do"), form)
    assert play.work_off(BulkOrder.objects.get()).done == 2
    assert Execution.objects.get(pk=rows[2].pk).status == "requested"


def test_the_page_of_an_order_is_its_receipt(admin_client: Client) -> None:
    ended, open_one = play.several(1, "completed")[0], play.several(1)[0]
    order = play.work_off(play.order("cancel", ids=[ended.pk, open_one.pk]))
    page = html(admin_client, "bulk_order", order.pk)
    for text in ("Cancel 2 executions", play.REASON, ROOT.actor, "already-over", str(ended.pk)):
        assert text in page
    assert '<progress max="2" value="2"' in page
    assert 'data-opens="stop"' not in page
    assert "Cancel 2 executions" in html(admin_client, "bulk")


def test_stop_asks_for_a_reason_and_is_refused_after_the_end(admin_client: Client) -> None:
    play.several(2)
    order = play.order("cancel", "status:open")
    url = reverse("console:bulk_stop", args=[order.pk])
    assert 'data-opens="stop"' in html(admin_client, "bulk_order", order.pk)
    admin_client.post(url, {"reason": ""})
    assert "A reason of" in said(admin_client)
    admin_client.post(url, {"reason": "wrong ones"})
    order.refresh_from_db()
    assert (order.state, order.ended_by, order.end_reason) == (
        "stopped", "user:admin", "wrong ones",
    )  # fmt: skip
    said(admin_client)
    admin_client.post(url, {"reason": "again"})
    assert "is stopped" in said(admin_client)
    assert Execution.objects.filter(status="requested").count() == 2


def test_investigations_are_closed_with_a_resolution(admin_client: Client) -> None:
    entry = make_dlq_entry(now=clock.now(), dlq_reason="poison", original_queue="mail")
    page = html(admin_client, "bulk_new", verb="close", q="reason:poison queue:mail")
    assert "<option>permanently_failed</option>" in page
    form = {"verb": "close", "q": "reason:poison queue:mail", "matched": "1"}
    sent(admin_client, **form)
    assert "expected one of" in said(admin_client)
    sent(admin_client, **form, resolution="permanently_failed")
    play.work_off(BulkOrder.objects.get())
    entry.refresh_from_db()
    assert (entry.resolution_status, entry.resolved_by) == ("permanently_failed", "user:admin")


@pytest.mark.parametrize("role", ["", "viewer", "author"])
def test_who_may_not_order_sees_no_verb_and_is_refused(person: Person, role: str) -> None:
    play.several(3)
    order = play.order("cancel", "status:open")
    client = person(role)
    stop = reverse("console:bulk_stop", args=[order.pk])
    assert sent(client) == 403
    assert client.post(stop, {"reason": "x"}).status_code == 404
    assert "bulk.order" in html(client, "bulk_new", verb="cancel", q="status:open", answer=403)
    page = html(client, "bulk_order", order.pk, answer=200 if role else 403)
    assert 'data-opens="stop"' not in page
    order.refresh_from_db()
    assert (order.state, BulkOrder.objects.count()) == ("ordered", 1)


def test_an_operator_orders_and_sees_the_order(person: Person) -> None:
    play.several(3)
    client = person("operator")
    assert sent(client) == 302
    order = BulkOrder.objects.get()
    assert order.ordered_by == "user:operator"
    assert "Stop" in html(client, "bulk_order", order.pk)


@pytest.mark.parametrize("name", ["bulk", "bulk_order", "bulk_new"])
def test_a_page_takes_few_queries_however_much_there_is(admin_client: Client, name: str) -> None:
    play.several(60)
    order = play.work_off(play.order("again", "status:open"))
    for _ in range(60):
        play.order("cancel", "status:open")
    assert order.refused == 60
    args = [order.pk] if name == "bulk_order" else []
    query: Any = {"verb": "cancel", "q": "status:open"} if name == "bulk_new" else {}
    html(admin_client, name, *args, **query)
    with looking_alone():
        page = html(admin_client, name, *args, **query)
    assert len(page) < 60_000
    assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:", page)


def test_what_orders_say_is_text(admin_client: Client) -> None:
    play.several(1)
    order = play.order("cancel", "status:open", reason="<script>alert(1)</script>")
    for page in (html(admin_client, "bulk"), html(admin_client, "bulk_order", order.pk)):
        assert "<script>alert" not in page


# --- the bar of the list --------------------------------------------------------------------------


def bar(user: Principal, query: str) -> str:
    look = Look(user)
    return render_to_string("console/bulk_bar.html", {"bulk": bulk_bar.bar(look, query)})


def test_the_bar_says_how_many_match_and_leads_to_their_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    play.several(3)
    text = bar(ROOT, "status:open")
    assert "All 3 that match" in text
    assert "/console/bulk/new?verb=again&amp;q=status%3Aopen#order" in text
    monkeypatch.setattr(bulk_bar, "COUNTED", 2)
    assert "All more than 2 that match" in bar(ROOT, "status:open created:<1h")
    assert "that match" not in bar(ROOT, "")
    assert "All that match" in bar(ROOT, "status:faild")


def test_the_bar_offers_what_one_may_order() -> None:
    assert bar(principal(given("viewer")), "status:open").strip() == ""
    only = principal(given("bulk.order"), given("executions.read"), given("executions.cancel"))
    text = bar(only, "status:open")
    assert 'value="cancel"' in text
    assert 'value="again"' not in text


def test_a_count_is_kept_for_a_moment() -> None:
    play.several(1)
    bar(ROOT, "status:open id:0")
    with CaptureQueriesContext(connection) as queries:
        bar(ROOT, "status:open id:0")
    assert len(queries) == 0


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(working, "SHARE_SECONDS", 60.0)
