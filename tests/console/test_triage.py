"""Triage: what is to be looked into, and its end, with a note and by who may."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from orchestrator.core import clock, investigations
from orchestrator.core.models import Action, DLQEntry, Worker
from orchestrator.rollups import inbox
from tests.console.costs import looking_alone
from tests.console.test_pages import html
from tests.factories import make_dlq_entry, make_execution
from tests.principals import ROOT, given, staff

Person = Callable[[str], Client]

BYTES_MAX = 60_000
MAY_CHANGE = {"": False, "viewer": False, "author": False, "operator": True, "admin": True}


def make_entry(detail: str, *, minutes: float = 0, **values: Any) -> DLQEntry:
    at = clock.now() - timedelta(minutes=minutes)
    known: dict[str, Any] = {"dlq_reason": "max_retries_exceeded", "subject_name": "shop/orders/1"}
    return make_dlq_entry(now=at, detail=detail, opened_by="executor", **known | values)


@pytest.fixture
def entries(worker: Worker) -> list[DLQEntry]:
    """Twenty of one cause, and one of another that is older but weighs less."""
    make_entry("look", minutes=90, dlq_reason="manual_dlq", subject_name="")
    return [make_entry(f"charge: declined for {n}", minutes=n) for n in range(20)]


def key(row: int = 0) -> str:
    return inbox.read(ROOT).causes[row].key


def close_all(client: Client, of: str, *, answer: int = 302, **values: str) -> Any:
    url = reverse("console:triage_close_cause", args=[of])
    until = str(DLQEntry.objects.latest("pk").pk)
    form = {"note": "card expired", "resolution": "manually_resolved", "until": until} | values
    response = client.post(url, form)
    assert response.status_code == answer
    return response


def act(client: Client, name: str, entry: DLQEntry, **values: str) -> Any:
    url = reverse(f"console:{name}", args=[entry.dlq_entry_uuid])
    return client.post(url, {"note": "seen", "resolution": "cancelled", "back": url} | values)


# --- what is shown --------------------------------------------------------------------------------


def test_the_inbox_has_causes_the_most_urgent_first_with_the_parts_of_their_priority(
    admin_client: Client, entries: list[DLQEntry]
) -> None:
    page = html(admin_client, "triage")
    assert re.findall(r"<td><strong>(\d+)</strong></td>", page) == ["20", "1"]
    assert "500 for max_retries_exceeded, 19 for as many minutes unattended" in page
    assert "21 open, 2 causes" in page


def test_the_strip_and_now_lead_to_triage(admin_client: Client, entries: list[DLQEntry]) -> None:
    strip = html(admin_client, "now")
    assert f'<a href="{reverse("console:triage")}">triage</a>' in strip
    assert "investigationqueue" not in strip


def test_a_cause_lists_as_many_entries_as_it_counts(
    admin_client: Client, entries: list[DLQEntry]
) -> None:
    page = html(admin_client, "triage_cause", key())
    assert page.count('<tr id="entry-') == 20
    assert '<dialog id="close"' in page


def test_evidence_says_what_differs(admin_client: Client, action: Action, worker: Worker) -> None:
    execution = make_execution("running", action=action, worker=worker, now=clock.now())
    entry = investigations.open_manually(
        "execution", execution.pk, detail="look", now=clock.now(), actor="user:ada"
    )
    url = reverse("console:triage_entry", args=[entry.dlq_entry_uuid])
    assert "Nothing has changed" in admin_client.get(url).content.decode()
    type(execution).objects.filter(pk=execution.pk).update(priority=7)
    page = admin_client.get(url).content.decode()
    assert "1 value differs: these come first" in page
    assert '<tr class="differs"><td>priority</td><td>0</td><td>7</td><td>yes</td></tr>' in page
    assert reverse("console:execution", args=[execution.pk]) in page
    type(execution).objects.filter(pk=execution.pk).delete()
    assert "not there any more" in admin_client.get(url).content.decode()


def test_nothing_to_look_into_is_said(admin_client: Client, worker: Worker) -> None:
    assert "Nothing is to be looked into" in html(admin_client, "triage")


@pytest.mark.parametrize("name", ["triage", "triage_cause", "triage_entry"])
def test_a_page_takes_no_more_queries_than_it_may_and_stays_small(
    admin_client: Client, entries: list[DLQEntry], action: Action, worker: Worker, name: str
) -> None:
    execution = make_execution("running", action=action, worker=worker, now=clock.now())
    subject = investigations.open_manually(
        "execution", execution.pk, detail="x", now=clock.now(), actor="user:ada"
    )
    for number in range(60):
        word = "".join(chr(97 + int(digit)) for digit in f"{number:02}")
        make_entry(f"{word} is wrong: {word * 40}", minutes=number)
        make_entry(f"charge: declined for {number}")
    by_page: dict[str, list[object]] = {
        "triage": [], "triage_cause": [key()], "triage_entry": [subject.dlq_entry_uuid]
    }  # fmt: skip
    args = by_page[name]
    html(admin_client, name, *args)
    with looking_alone():
        page = html(admin_client, name, *args)
    assert len(page) <= BYTES_MAX


def test_what_came_from_outside_is_text_and_its_secrets_are_on_no_page(
    admin_client: Client, worker: Worker
) -> None:
    entry = make_entry(
        "<script>alert(1)</script>",
        snapshot={"password": "hunter", "text": "<b>bold</b>", "nested": {"token": ["hunter"]}},
        headers={"authorization": "hunter", "x": "\ud83d<i>"},
        raw_body=b'{"secret": "hunter", "x": "<u>"}',
        fingerprint="f",
    )
    pages = [html(admin_client, "triage"), html(admin_client, "triage_cause", key())]
    pages.append(html(admin_client, "triage_entry", entry.dlq_entry_uuid))
    for page in pages:
        assert "hunter" not in page
        for tag in ("<script>alert", "<b>bold", "<i>\n", "<u>"):
            assert tag not in page


def test_who_may_not_see_payloads_is_shown_none(entries: list[DLQEntry], worker: Worker) -> None:
    client = staff("blind", given("dlq.read"))
    entry = make_entry("charge: declined", snapshot={"order": "nr. 17"})
    pages = [html(client, "triage"), html(client, "triage_cause", key())]
    pages.append(html(client, "triage_entry", entry.dlq_entry_uuid))
    for page in pages:
        assert "declined" not in page
        assert "nr. 17" not in page


# --- its end --------------------------------------------------------------------------------------


def test_all_of_a_cause_are_closed_with_one_note_and_nothing_else(
    admin_client: Client, entries: list[DLQEntry]
) -> None:
    close_all(admin_client, key())
    closed = DLQEntry.objects.exclude(resolution_status="pending")
    assert set(closed) == set(entries)
    for entry in closed:
        assert entry.resolution_status == "manually_resolved"
        assert entry.resolved_by == "user:admin"
        assert [note["text"] for note in entry.notes] == ["card expired"]
    assert "Closed 20: manually_resolved." in html(admin_client, "triage")


@pytest.mark.parametrize("note", ["", "   ", "x" * 2_001, "a\0b"])
def test_without_a_note_nothing_is_closed_whatever_is_posted(
    admin_client: Client, entries: list[DLQEntry], note: str
) -> None:
    close_all(admin_client, key(), note=note)
    act(admin_client, "triage_close", entries[0], note=note)
    act(admin_client, "triage_note", entries[0], note=note)
    assert DLQEntry.objects.pending().count() == 21
    assert not any(DLQEntry.objects.values_list("notes", flat=True))
    assert "A note of 1 to" in html(admin_client, "triage")


@pytest.mark.parametrize("resolution", ["", "pending", "closed"])
def test_an_entry_ends_in_one_of_three_ways(
    admin_client: Client, entries: list[DLQEntry], resolution: str
) -> None:
    close_all(admin_client, key(), resolution=resolution)
    act(admin_client, "triage_close", entries[0], resolution=resolution)
    assert DLQEntry.objects.pending().count() == 21
    assert "Expected a resolution, one of" in html(admin_client, "triage")


def test_what_came_after_the_page_stays_open(admin_client: Client, entries: list[DLQEntry]) -> None:
    until = str(max(entry.pk for entry in entries))
    late = make_entry("charge: declined for 99")
    close_all(admin_client, key(), until=until)
    late.refresh_from_db()
    assert not late.is_closed
    assert DLQEntry.objects.pending().count() == 2
    close_all(admin_client, key(), until="all")
    assert DLQEntry.objects.pending().count() == 2


def test_more_than_a_hundred_are_closed_in_parts(
    admin_client: Client, entries: list[DLQEntry], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbox, "CLOSED_AT_ONCE", 8)
    of = key()
    assert "Close 8 entries of this cause?" in html(admin_client, "triage_cause", of)
    assert close_all(admin_client, of)["Location"] == reverse("console:triage_cause", args=[of])
    assert "12 more of this cause are open" in html(admin_client, "triage_cause", of)
    assert DLQEntry.objects.pending().count() == 13


def test_what_is_refused_is_told_one_by_one(
    admin_client: Client, entries: list[DLQEntry], monkeypatch: pytest.MonkeyPatch
) -> None:
    close = investigations.close
    taken = {entries[3].dlq_entry_uuid, entries[5].dlq_entry_uuid}

    def raced(uuid: Any, **values: Any) -> DLQEntry:
        if uuid in taken:
            close(uuid, **values | {"actor": "user:bob"})
        return close(uuid, **values)

    monkeypatch.setattr(investigations, "close", raced)
    close_all(admin_client, key())
    page = html(admin_client, "triage")
    assert "Closed 18 of 20" in page
    for uuid in taken:
        assert re.search(f"Still open: {uuid}: .*by user:bob", page)


def test_an_entry_that_is_closed_offers_no_act_and_refuses_each(
    admin_client: Client, entries: list[DLQEntry]
) -> None:
    assert act(admin_client, "triage_close", entries[0]).status_code == 302
    page = html(admin_client, "triage_entry", entries[0].dlq_entry_uuid)
    assert "It is closed for good" in page
    assert '<dialog id="close"' not in page
    assert '<dialog id="note"' not in page
    for name in ("triage_close", "triage_note"):
        act(admin_client, name, entries[0], note="again")
        assert "a closed entry is final" in html(admin_client, "triage")
    entries[0].refresh_from_db()
    assert [note["text"] for note in entries[0].notes] == ["seen"]


def test_a_note_is_added_and_the_entry_stays_open(
    admin_client: Client, entries: list[DLQEntry]
) -> None:
    act(admin_client, "triage_note", entries[0])
    entries[0].refresh_from_db()
    assert not entries[0].is_closed
    assert "seen" in html(admin_client, "triage_entry", entries[0].dlq_entry_uuid)


@pytest.mark.parametrize("role", MAY_CHANGE)
def test_an_act_is_drawn_for_who_may_and_refused_to_others(
    person: Person, entries: list[DLQEntry], role: str
) -> None:
    client, may = person(role), MAY_CHANGE[role]
    answer = 200 if role else 403
    of = key()
    html(client, "triage", answer=answer)
    for name, arg in (("triage_cause", of), ("triage_entry", entries[0].dlq_entry_uuid)):
        page = html(client, name, arg, answer=answer)
        assert ('<dialog id="close"' in page) == may
    allowed = 302 if may else 403 if role else 404
    assert act(client, "triage_note", entries[0]).status_code == allowed
    assert act(client, "triage_close", entries[0]).status_code == allowed
    close_all(client, of, answer=302 if may else 403)
    assert DLQEntry.objects.pending().count() == (1 if may else 21)


def test_what_is_beyond_a_grant_is_neither_shown_nor_closed(worker: Worker) -> None:
    mine = make_entry("x", subject_kind="execution", subject_name="shop.charge")
    other = make_entry("y", subject_kind="execution", subject_name="core.echo")
    client = staff("scoped", given("operator", packs=["shop"]))
    assert html(client, "triage").count("<strong>1</strong>") == 1
    html(client, "triage_entry", other.dlq_entry_uuid, answer=404)
    assert act(client, "triage_close", other).status_code == 404
    close_all(client, inbox.key_of(other), answer=404)
    assert act(client, "triage_close", mine).status_code == 302
    assert list(DLQEntry.objects.pending()) == [other]


def test_nothing_is_closed_by_looking(admin_client: Client, entries: list[DLQEntry]) -> None:
    url = reverse("console:triage_close_cause", args=[key()])
    assert admin_client.get(url, {"note": "x"}).status_code == 405
    forged = Client(enforce_csrf_checks=True)
    assert forged.post(url, {"note": "x"}).status_code == 403
    assert DLQEntry.objects.pending().count() == 21


def test_a_cause_that_is_over_is_said_to_be_none(
    admin_client: Client, entries: list[DLQEntry]
) -> None:
    of = key()
    close_all(admin_client, of)
    assert "No pending investigation has this cause" in html(
        admin_client, "triage_cause", of, answer=404
    )
