"""The list of executions: searches, what is refused, saved searches, columns, and its bounds."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from orchestrator.core import clock, cursors, search
from orchestrator.core.models import Action, Execution, SavedSearch, Worker
from orchestrator.core.search import finding, saved
from tests.console.costs import looking_alone
from tests.factories import make_action, make_execution

Person = Callable[[str], Client]

LIST = "/console/executions"


def page(client: Client, q: str = "", **query: Any) -> str:
    response = client.get(LIST, {"q": q, **query})
    assert response.status_code == 200
    return unescape(response.content.decode())


def rows(text: str) -> int:
    return text.count('<tr id="x-')


# --- searches ------------------------------------------------------------------------------------


def test_a_part_of_its_message_finds_a_failed_execution_which_shows_it(
    admin_client: Client, work: None
) -> None:
    found = page(admin_client, 'message:"to printer"')
    assert rows(found) == 1
    assert "no route to printer 7" in found
    assert rows(page(admin_client, "message:nothing")) == 0


def test_the_value_of_a_name_in_a_message_is_on_no_row_and_no_page(
    admin_client: Client, action: Action, worker: Worker
) -> None:
    message = "login failed: password=hunter2, api_key: hunter2"
    execution = make_execution(
        "failed", action=action, worker=worker, now=clock.now(), reason="action_failed",
        result={"message": message},
    )  # fmt: skip
    pages = [page(admin_client, ""), page(admin_client, 'message:"login failed"')]
    urls = [f"/console/executions/{execution.pk}", f"/console/catalogue/actions/{action.ref}"]
    pages += [admin_client.get(url).content.decode() for url in urls]
    for text in pages:
        assert "hunter2" not in text
        assert "password=***" in text


@pytest.mark.parametrize(
    ("q", "wrong", "said"),
    [
        ("status:faild", "faild", "did you mean 'failed'?"),
        ("wroker:w1 status:failed", "wroker", "did you mean 'worker'?"),
        ('message:"open', '"open', "a quote that is not closed"),
        ("status:failed,", ",", "expected a value here"),
    ],
)
def test_a_search_that_cannot_be_read_is_marked_and_shows_nothing(
    admin_client: Client, work: None, q: str, wrong: str, said: str
) -> None:
    found = page(admin_client, q)
    assert f"<mark>{wrong}</mark>" in found
    assert said in found
    assert rows(found) == 0
    assert 'aria-invalid="true"' in found
    assert "Older" not in found


def test_a_search_is_text_wherever_it_is_shown(admin_client: Client, work: None) -> None:
    for q in ("<script>alert(1)</script>", 'status:"<b>"', "\x1b[31m", "x" * 1_200):
        response = admin_client.get(LIST, {"q": q})
        assert b"<script>alert" not in response.content
        assert b"<b>" not in response.content


def test_a_search_that_takes_too_long_says_so_and_shows_nothing(
    admin_client: Client, work: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(*args: object, **keywords: object) -> None:
        raise finding.SearchTookTooLong

    monkeypatch.setattr(search, "find", slow)
    found = page(admin_client, "message:printer")
    assert "The search took too long" in found
    assert rows(found) == 0


def test_a_page_says_what_it_looked_at_and_leads_on(
    admin_client: Client, action: Action, worker: Worker
) -> None:
    now = clock.now()
    for hours in (1, 30):
        at = now - timedelta(hours=hours)
        id = Execution(created_at=at).pk
        make_execution("failed", action=action, worker=worker, now=at, pk=_at(id, at))
    found = page(admin_client, "reason:worker_lost")
    assert rows(found) == 1
    assert "Looked at 24 h, back to" in found
    older = re.search(r'href="\?([^"]+)">Go on', found)
    assert older is not None
    assert rows(admin_client.get(f"{LIST}?{older[1]}").content.decode()) == 1


def _at(id: Any, at: Any) -> Any:
    from tests.core.search.conftest import id_of

    return id_of(at, id.int & 0xFFFFFFFF)


def test_what_is_newer_is_counted_for_a_search_and_shown_on_demand(
    admin_client: Client, work: None, action: Action, worker: Worker
) -> None:
    first = Execution.objects.filter(status="failed").get().pk
    for status in ("failed", "completed", "failed"):
        make_execution(status, action=action, worker=worker, now=clock.now())
    headers = {"X-Live": "1", "X-First": str(first)}
    answer = admin_client.get(LIST, {"q": "status:failed"}, headers=headers).content.decode()
    assert "2 newer" in answer
    assert rows(answer) == 1
    assert rows(page(admin_client, "status:failed")) == 3


def test_filters_of_older_addresses_are_terms(admin_client: Client, work: None) -> None:
    answer = admin_client.get(LIST, {"status": "failed", "worker": "w1"}).content.decode()
    assert 'value="status:failed worker:w1"' in answer
    assert rows(answer) == 1


def test_past_their_deadline_is_a_search(admin_client: Client, action: Action) -> None:
    now = clock.now()
    make_execution("requested", action=action, now=now, created_at=now - timedelta(days=2))
    make_execution("requested", action=action, now=now)
    assert rows(page(admin_client, "is:overdue")) == 1
    assert rows(page(admin_client, "-is:overdue")) == 1


# --- columns -------------------------------------------------------------------------------------


def test_columns_are_chosen_in_the_address_and_stay_with_a_search(
    admin_client: Client, work: None
) -> None:
    found = page(admin_client, "status:failed", col=["status", "reason"])
    heads = re.findall(r'<th scope="col">([^<]+)</th>', found)
    assert heads == ["Status", "Reason", "Id"]
    assert "worker" not in re.findall(r'<a href="\?q=status%3Aopen&([^"]*)"', found)[0]
    assert "col=status&col=reason" in found.replace("&amp;", "&")
    assert "<th" in page(admin_client, col=["nothing"])


# --- completion ----------------------------------------------------------------------------------


def complete(client: Client, q: str, **query: Any) -> Any:
    return client.get(reverse("console:complete"), {"q": q, **query}).json()["items"]


def test_completion_is_of_what_the_user_may_see(
    admin_client: Client, person: Person, action: Action
) -> None:
    assert complete(admin_client, "status:fa", at="9")[0]["text"] == "failed"
    assert [each["text"] for each in complete(admin_client, "action:")] == ["core.echo"]
    assert complete(person(""), "action:") == []
    for at in ("-1", "99999", "x", "²", ""):
        complete(admin_client, "sta", at=at)


# --- saved searches ------------------------------------------------------------------------------


def save(client: Client, name: str, q: str = "status:failed", **more: str) -> Any:
    url = reverse("console:save-search")
    return client.post(url, {"name": name, "q": q, "back": LIST, **more})


def test_a_saved_search_is_beside_the_search_for_who_saved_it(
    admin_client: Client, person: Person
) -> None:
    answer = save(admin_client, "red", "status:failed created:<1h")
    assert answer["Location"] == "/console/executions?q=status%3Afailed+created%3A%3C1h"
    assert ">red</a>" in page(admin_client)
    assert ">red</a>" not in page(person("viewer"))


def test_a_shared_search_is_seen_by_all_and_removed_by_who_may_share(
    admin_client: Client, person: Person
) -> None:
    save(admin_client, "red", is_shared="yes")
    viewer, id = person("viewer"), SavedSearch.objects.get().pk
    assert ">red</a>" in page(viewer)
    assert "Remove one" not in page(viewer)
    remove = reverse("console:remove-search")
    assert viewer.post(remove, {"id": id}).status_code == 403
    assert person("operator").post(remove, {"id": id}).status_code == 302
    assert not SavedSearch.objects.exists()


@pytest.mark.parametrize(
    ("role", "own", "shared"),
    [("", 403, 403), ("viewer", 302, 403), ("operator", 302, 302), ("admin", 302, 302)],
)
def test_who_may_read_executions_saves_their_own_and_sharing_has_its_permission(
    person: Person, role: str, own: int, shared: int
) -> None:
    client = person(role)
    assert save(client, "one").status_code == own
    answer = save(client, "two", is_shared="yes")
    assert answer.status_code == shared
    assert SavedSearch.objects.count() == (own == 302) + (shared == 302)
    if own == 302:
        assert ('name="is_shared"' in page(client)) is (shared == 302)


@pytest.mark.parametrize(
    ("name", "q"),
    [("", "status:failed"), ("x" * 61, "status:failed"), ("a\nb", "status:failed"),
     ("a\u202eb", "status:failed"), ("red", ""), ("red", "status:faild")],
)  # fmt: skip
def test_what_cannot_be_saved_is_said_and_changes_nothing(
    admin_client: Client, name: str, q: str
) -> None:
    answer = save(admin_client, name, q)
    assert answer["Location"] == LIST
    assert 'class="error"' in admin_client.get(LIST).content.decode()
    assert not SavedSearch.objects.exists()


def test_a_name_is_taken_once_and_a_person_saves_so_many(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(admin_client, "red")
    save(admin_client, "red", "status:open")
    assert SavedSearch.objects.get().text == "status:failed"
    monkeypatch.setattr(saved, "MOST_OF_ONE", 1)
    save(admin_client, "blue")
    assert SavedSearch.objects.count() == 1


def test_one_is_removed_by_its_owner_and_unknown_to_others(
    admin_client: Client, person: Person
) -> None:
    save(admin_client, "red")
    url, id = reverse("console:remove-search"), SavedSearch.objects.get().pk
    operator = person("operator")
    for number in (id, "x", "-1", "", 2**70):
        assert operator.post(url, {"id": number}).status_code == 404
    assert admin_client.get(url).status_code == 405
    assert admin_client.post(url, {"id": id}).status_code == 302
    assert not SavedSearch.objects.exists()


# --- costs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("q", ["", "status:failed created:<1h", "status:open", "message:printer"])
def test_a_page_of_fifty_takes_few_queries_and_few_bytes(
    admin_client: Client, work: None, action: Action, worker: Worker, q: str
) -> None:
    result = {"message": "no route to printer 7 " * 20}
    for _ in range(60):
        make_execution("failed", action=action, worker=worker, now=clock.now(),
                       reason="action_failed", result=result)  # fmt: skip
    page(admin_client, q)
    with looking_alone():
        found = page(admin_client, q)
    assert len(found.encode()) <= 60_000


def test_a_list_looks_at_a_bounded_number_of_rows(
    admin_client: Client, work: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cursors, "LOOKED_AT_LIMIT", 2)
    for name in ("FIRST_SLICE", "FIRST_COMPARED"):
        monkeypatch.setattr(finding, name, 2)
    assert "Looked at 2 executions" in page(admin_client, "reason:key_refused")


def test_only_what_a_user_may_see_is_found(person: Person, work: None) -> None:
    make_execution("failed", action=make_action("shop.charge"), now=clock.now())
    from tests.principals import given, staff

    client = staff("shopkeeper", given("viewer", packs=["shop"]))
    assert rows(page(client)) == 1
    assert rows(page(client, "status:failed")) == 1
