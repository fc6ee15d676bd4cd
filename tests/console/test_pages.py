"""What the console's pages show, to whom, and what they cost."""

from __future__ import annotations

import re
from collections.abc import Callable
from urllib.parse import urlsplit

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from orchestrator.console import heat, kept
from orchestrator.console.pages import fleet, now
from orchestrator.core import clock
from orchestrator.core.models import Execution, Worker
from tests.console.costs import looking_alone
from tests.factories import make_worker

Person = Callable[[str], Client]

PAGES = ("now", "fleet", "executions")
STRIP_MAX = 2


def html(client: Client, name: str, *args: object, answer: int = 200, **query: str) -> str:
    response = client.get(reverse(f"console:{name}", args=args), query)
    assert response.status_code == answer, response.content.decode()[:500]
    return response.content.decode()


def numbers(page: str) -> dict[str, tuple[str, int]]:
    """The address and the value of each number, by its name."""
    link, name, count = r'"><a href="([^"]+)">', r">(\w+)</span>", r">([\d,]+)</span>"
    pattern = rf'class="number[^"]*{link}<span class="name"{name} <span class="count"{count}'
    return {
        f"{name} {url}": (url.replace("&amp;", "&"), int(count.replace(",", "")))
        for url, name, count in re.findall(pattern, page)
    }


def test_the_first_address_leads_staff_to_now_and_others_to_the_login(
    admin_client: Client, client: Client
) -> None:
    assert admin_client.get("/")["Location"] == reverse("console:now")
    assert client.get(reverse("console:now"))["Location"].startswith(reverse("admin:login"))


def test_each_number_of_now_leads_to_a_list_of_as_many(admin_client: Client, work: None) -> None:
    found = numbers(html(admin_client, "now"))
    assert len(found) >= 7
    for name, (url, count) in found.items():
        rows = admin_client.get(url).content.decode().count('<tr id="x-')
        assert rows == count, name


def make_fleet(number: int) -> None:
    """Workers that have nothing to do, of whom the last one is cordoned."""
    for each in range(number):
        make_worker(f"w{each}", now=clock.now(), cordoned=each == number - 1)


def test_of_a_large_fleet_now_shows_what_is_not_well_and_leads_to_the_rest(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(now, "WORKERS_MAX", 3)
    make_fleet(5)
    page = html(admin_client, "now")
    assert re.findall(r'<li id="small-\d+"><a [^>]*>(w\d)', page) == ["w0", "w1", "w4"]
    assert f'<a href="{reverse("console:fleet")}">2 more</a>' in page


def test_of_a_large_fleet_the_table_has_a_part_and_the_map_all(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet, "ROWS_MAX", 2)
    make_fleet(4)
    page = html(admin_client, "fleet")
    assert page.count('<li id="heat-') == 4
    assert re.findall(r'<tr id="row-\d+"><td><a [^>]*>(w\d)', page) == ["w0", "w3"]
    assert "2 of 4: those that are not well" in page


def test_the_map_of_a_large_fleet_has_plain_cells_and_says_them_to_who_does_not_see(
    admin_client: Client, work: None, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    linked = html(admin_client, "fleet")
    assert linked.count('<a class="cell runs"') == 2
    assert linked.count('<a class="cell waits"') == 1
    monkeypatch.setattr(heat, "LINKED_MAX", 3)
    page = html(admin_client, "fleet")
    cells = '<i></i><i></i><i class="free"></i><i class="free"></i><i class="waits"></i>'
    said = f"2 of {worker.capacity}, 1 waiting"
    assert f'<span class="cells" role="img" aria-label="{said}">{cells}</span>' in page
    assert f"<td>{said}</td>" in page


def test_a_worker_that_holds_more_than_is_drawn_says_how_much_more(
    admin_client: Client, work: None, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heat, "CELLS_MAX", 4)
    assert "</i></span>" not in html(admin_client, "fleet").split('class="heat"')[1]
    for linked_max in (1_000, 3):
        monkeypatch.setattr(heat, "LINKED_MAX", linked_max)
        assert " +1</span>" in html(admin_client, "fleet")


def statements(client: Client, name: str) -> int:
    with CaptureQueriesContext(connection) as queries:
        html(client, name)
        return len(queries)


def test_the_strip_takes_two_statements_and_no_more_for_more_workers(
    admin_client: Client, work: None, worker: Worker
) -> None:
    html(admin_client, "access")
    after = statements(admin_client, "access")
    kept.clear()
    assert statements(admin_client, "access") == after + STRIP_MAX
    for number in range(20):
        make_worker(f"more-{number}", now=clock.now())
    kept.clear()
    assert statements(admin_client, "access") == after + STRIP_MAX


def test_a_list_shows_what_went_wrong_in_each_row(admin_client: Client, work: None) -> None:
    assert "no route to printer 7" in html(admin_client, "executions", status="failed")


def test_what_a_filter_does_not_know_matches_nothing(admin_client: Client, work: None) -> None:
    page = html(admin_client, "executions", status="faild")
    assert "did you mean &#x27;failed&#x27;?" in page
    assert '<tr id="x-' not in page


def test_a_list_that_is_read_stays_and_counts_what_is_newer(
    admin_client: Client, work: None
) -> None:
    second = Execution.objects.order_by("-pk")[1]
    answer = admin_client.get(
        reverse("console:executions"), headers={"X-Live": "1", "X-First": str(second.pk)}
    )
    page = answer.content.decode()
    assert "1 newer" in page
    assert page.count('<tr id="x-') == Execution.objects.count() - 1
    assert "<html" not in page


@pytest.mark.parametrize("name", [*PAGES, "worker"])
def test_a_page_takes_no_more_queries_than_it_may_however_much_there_is(
    admin_client: Client, work: None, worker: Worker, name: str
) -> None:
    args = [worker.name] if name == "worker" else []
    for number in range(20):
        make_worker(f"more-{number}")
    html(admin_client, name, *args)
    with looking_alone():
        html(admin_client, name, *args)


def test_a_page_has_no_script_or_style_in_it_and_loads_only_its_own(
    admin_client: Client, work: None, worker: Worker
) -> None:
    for name, *args in ([each] for each in PAGES):
        page = html(admin_client, name, *args)
        assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:", page)
        scripts = re.findall(r"<script[^>]*>[^<]*", page)
        assert scripts
        assert all("src=" in script and script.endswith(">") for script in scripts)
        for url in re.findall(r'(?:src|href)="([^"]+)"', page):
            assert not urlsplit(url).netloc


def test_the_policy_allows_no_script_or_style_in_a_page(admin_client: Client) -> None:
    policy = admin_client.get(reverse("console:now"))["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert "unsafe" not in policy


@pytest.mark.parametrize("name", [*PAGES, "worker"])
def test_who_has_no_grant_sees_nothing_and_is_told_the_permission(
    person: Person, work: None, worker: Worker, name: str
) -> None:
    worker.name = "press-7"  # the random token of a form cannot hold it
    worker.save()
    args = [worker.name] if name == "worker" else []
    page = html(person(""), name, *args, answer=200 if name == "now" else 403)
    assert worker.name not in page
    assert name == "now" or re.search(r"needs the permission (workers|executions)\.read", page)


def test_what_a_worker_is_called_is_text(admin_client: Client) -> None:
    make_worker("w", host="<script>alert(1)</script>", status_reason="<b>bold</b>")
    for page in (html(admin_client, "fleet"), html(admin_client, "worker", "w")):
        assert "<script>alert" not in page
        assert "<b>bold" not in page


def test_a_worker_or_execution_that_is_not_there_is_said_to_be_none(admin_client: Client) -> None:
    assert "No worker has the name w9" in html(admin_client, "worker", "w9", answer=404)
    missing = "00000000-0000-7000-8000-000000000000"
    assert f"No execution has the id {missing}" in html(
        admin_client, "execution", missing, answer=404
    )


def test_a_page_that_is_refused_keeps_nothing_up(admin_client: Client, person: Person) -> None:
    """A page whose live part is refused is loaded again: it has to end there."""
    gone = reverse("console:worker", args=["w9"])
    for client, url, status in ((admin_client, gone, 404), (person(""), gone, 403)):
        for headers in ({}, {"X-Live": "1"}):
            answer = client.get(url, headers=headers)
            assert answer.status_code == status
            assert b"<script" not in answer.content


def test_an_execution_says_how_it_came_to_its_end(admin_client: Client, work: None) -> None:
    failed = Execution.objects.get(status="failed")
    page = html(admin_client, "execution", failed.pk)
    assert "no route to printer 7" in page
    assert "The action failed: “no route to printer 7”." in page
