"""What Now shows of the time before, and the pages of causes."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from orchestrator.access import audit
from orchestrator.access.audit.models import AuditEvent
from orchestrator.core import clock
from orchestrator.core.models import Action, Execution, Worker, WorkerEvent
from orchestrator.rollups import minutes
from orchestrator.rollups.models import FailureGroup, Mark
from tests.console.costs import looking_alone
from tests.console.test_pages import html
from tests.factories import make_action, make_execution
from tests.principals import given, staff
from tests.rollups.conftest import note_end, roll_up

Person = Callable[[str], Client]

BYTES_MAX = 60_000


def fail(message: Any, worker: Worker, *, action: Action | None = None) -> Execution:
    execution = make_execution(
        "failed", action=action, worker=worker, now=clock.now(), reason="action_failed",
        result={"message": message},
    )  # fmt: skip
    note_end(execution)
    return execution


@pytest.fixture
def failures(action: Action, worker: Worker) -> None:
    """Three of one kind and one of another, and some that completed."""
    for number in range(3):
        fail(f"no route to printer {number}", worker, action=action)
    fail("out of paper", worker, action=action)
    for _ in range(5):
        note_end(make_execution("completed", action=action, worker=worker, now=clock.now()))
    roll_up(now=clock.now())


def causes(page: str) -> dict[str, tuple[str, int]]:
    """The address and the number of each cause that is listed."""
    pattern = r'<strong>(\d+)</strong></td>.*?<a href="([^"]+)">([^<]+)</a>'
    return {title: (url, int(number)) for number, url, title in re.findall(pattern, page)}


def test_failures_of_one_kind_are_one_cause_and_its_number_is_that_of_its_list(
    admin_client: Client, failures: None
) -> None:
    found = causes(html(admin_client, "causes"))
    assert {title: n for title, (_, n) in found.items()} == {
        "no route to printer #": 3,
        "out of paper": 1,
    }
    for url, number in found.values():
        page = admin_client.get(url).content.decode()
        assert page.count('<tr id="x-') == number
        assert f"<strong>{number}</strong> failed" in page
        assert "w1" in page


def test_a_failed_execution_leads_to_the_others_of_its_cause(
    admin_client: Client, failures: None
) -> None:
    group = FailureGroup.objects.get(sample="no route to printer #")
    page = html(admin_client, "execution", group.failures.all()[0].pk)
    (url,) = re.findall(r'<a href="([^"]+)">Others of its cause<', page)
    assert admin_client.get(url.replace("&amp;", "&")).content.decode().count('<tr id="x-') == 3
    completed = Execution.objects.filter(status="completed").first()
    assert completed is not None
    assert "Others of its cause" not in html(admin_client, "execution", completed.pk)


def test_the_list_of_a_cause_has_the_message_of_each_and_pages(
    admin_client: Client, failures: None, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.console.pages.causes.ROWS", 2)
    group = FailureGroup.objects.get(sample="no route to printer #")
    page = html(admin_client, "cause", group.pk)
    assert "no route to printer 2" in page
    (older,) = re.findall(r'href="(\?[^"]*before[^"]*)"', page)
    rest = admin_client.get(reverse("console:cause", args=[group.pk]) + older.replace("&amp;", "&"))
    assert rest.content.decode().count('<tr id="x-') == 1


def test_an_execution_that_was_removed_is_said_to_be_gone(
    admin_client: Client, failures: None
) -> None:
    group = FailureGroup.objects.get(sample="out of paper")
    group.failures.update(execution_id="00000000-0000-7000-8000-000000000000")
    assert "removed, as it was old" in html(admin_client, "cause", group.pk)


def test_a_cause_leads_to_a_search_for_its_executions_and_to_running_them_again(
    admin_client: Client, failures: None
) -> None:
    group = FailureGroup.objects.get(sample="no route to printer #")
    ids = {str(each) for each in group.failures.values_list("execution_id", flat=True)}
    page = html(admin_client, "cause", group.pk)
    (search,) = re.findall(r'href="([^"]+)">search among them', page)
    rows = admin_client.get(search).content.decode()
    assert set(re.findall(r'<tr id="x-([^"]+)"', rows)) == ids
    (again,) = re.findall(r'href="([^"#]+)#order">run these again', page)
    plan = admin_client.get(again.replace("&amp;", "&")).content.decode()
    assert f"cause:{group.pk} created:&lt;24h" in plan
    assert all(id in plan for id in ids)


def test_who_may_not_order_in_bulk_is_offered_no_run_again(person: Person, failures: None) -> None:
    group = FailureGroup.objects.get(sample="out of paper")
    assert "run these again" not in html(person("viewer"), "cause", group.pk)
    assert "run these again" in html(person("operator"), "cause", group.pk)


def test_now_shows_the_top_causes_and_what_ended_with_the_same_numbers_as_a_table(
    admin_client: Client, failures: None
) -> None:
    page = html(admin_client, "now")
    assert "no route to printer #" in page
    assert "completed <strong>5</strong>" in page
    assert "failed <strong>4</strong>" in page
    table = page[page.index('id="chart-ended"') :]
    head = re.findall(r'<th scope="col">([^<]+)</th>', table[: table.index("</thead>")])
    rows = re.findall(r"<tr>(.*?)</tr>", table[table.index("<tbody>") : table.index("</tbody>")])
    cells = [dict(zip(head, re.findall(r"<td>([^<]*)</td>", row), strict=True)) for row in rows]
    assert sum(int(each["completed"]) for each in cells) == 5
    assert all("(not final)" in each["From"] for each in cells)
    assert 'class="bar o-failed draft"' in page
    assert page.count('class="spark"') == 2


def test_what_is_final_is_not_drawn_lighter(admin_client: Client, failures: None) -> None:
    later = clock.now() + timedelta(minutes=5)
    Mark.objects.filter(name=minutes.NAME).update(read_until=later)
    page = html(admin_client, "now", charts="1h")
    assert "(not final)" not in page
    assert 'class="bar o-failed"' in page


def test_now_marks_what_happened_to_workers(
    admin_client: Client, failures: None, worker: Worker
) -> None:
    now = clock.now()
    common: dict[str, Any] = {"worker": worker, "incarnation": 1, "actor": "user:ada"}
    WorkerEvent.objects.create(kind="cordoned", at=now, reason="<b>new disk</b>", **common)
    WorkerEvent.objects.create(kind="registered", at=now, **common)
    WorkerEvent.objects.create(kind="lost", at=now - timedelta(days=30), **common)
    page = html(admin_client, "now")
    assert "cordoned (&lt;b&gt;new disk&lt;/b&gt;)" in page
    assert page.count('<path class="mark" d="M') == 3
    assert "registered" not in page
    assert " lost" not in page


@pytest.mark.parametrize("window", ["15m", "1h", "24h", "7d", "nothing", ""])
def test_each_time_is_drawn_and_others_are_the_usual_one(
    admin_client: Client, failures: None, window: str
) -> None:
    page = html(admin_client, "now", charts=window)
    assert page.count('class="chart"') == 3
    assert "completed <strong>5</strong>" in page
    chosen = window if window in ("15m", "1h", "24h", "7d") else "15m"
    assert f'href="?charts={chosen}" aria-current="true"' in page


def test_without_anything_the_pages_say_so(admin_client: Client, worker: Worker) -> None:
    assert "nothing in this time" in html(admin_client, "now")
    assert "Nothing failed in this time" in html(admin_client, "causes")
    assert "Nothing of this action failed" in html(admin_client, "causes", action="core.x")


@pytest.mark.parametrize("name", ["now", "causes", "cause"])
def test_a_page_takes_no_more_queries_than_it_may_and_stays_small(
    admin_client: Client, action: Action, worker: Worker, name: str
) -> None:
    for number in range(60):
        word = "".join(chr(97 + int(digit)) for digit in f"{number:02}")
        fail(f"{word} is wrong", worker, action=make_action(f"core.{word}"))
        fail(f"no route to printer {number}", worker, action=action)
    roll_up(now=clock.now())
    group = FailureGroup.objects.get(sample="no route to printer #")
    args = [group.pk] if name == "cause" else []
    html(admin_client, name, *args)
    with looking_alone():
        page = html(admin_client, name, *args)
    assert len(page) <= BYTES_MAX


@pytest.mark.parametrize("role", ["", "viewer", "operator", "author", "admin"])
def test_who_may_not_see_executions_sees_no_cause(
    person: Person, failures: None, role: str
) -> None:
    group = FailureGroup.objects.get(sample="out of paper")
    answer = 200 if role else 403
    client = person(role)
    for name, *args in (["causes"], ["cause", group.pk]):
        page = html(client, str(name), *args, answer=answer)
        assert role or "needs the permission executions.read" in page
    if not role:
        assert "chart" not in html(client, "now")


def test_a_cause_of_a_pack_beyond_the_grant_is_not_there(failures: None, worker: Worker) -> None:
    client = staff("scoped", given("executions.read", packs=["other"]))
    group = FailureGroup.objects.get(sample="out of paper")
    assert "No cause has the number" in html(client, "cause", group.pk, answer=404)
    assert causes(html(client, "causes")) == {}
    assert "<strong>" not in html(client, "now")


def test_who_may_not_see_payloads_is_shown_none(failures: None, worker: Worker) -> None:
    client = staff("blind", given("executions.read"))
    group = FailureGroup.objects.get(sample="out of paper")
    for page in (html(client, "causes"), html(client, "cause", group.pk), html(client, "now")):
        assert "paper" not in page
        assert "***" in page


def test_each_who_is_shown_contents_by_one_answer_for_all_is_in_the_audit(
    failures: None, worker: Worker
) -> None:
    people = {name: staff(name, given("admin")) for name in ("ada", "bo")}
    before = AuditEvent.objects.count()
    answers = {
        name: client.get(reverse("console:now"), headers={"X-Live": "1"}).content
        for name, client in people.items()
    }
    assert answers["ada"] == answers["bo"]
    assert b"no route to printer" in answers["bo"]
    audit.flush()
    told = AuditEvent.objects.order_by("pk")[before:]
    expected = [(f"user:{name}", "payloads.read") for name in people]
    assert [(event.actor, event.permission) for event in told] == expected
    assert len({event.reason for event in told}) == 1, "the same places"


def test_what_an_action_says_is_text_and_its_secrets_are_on_no_page(
    admin_client: Client, action: Action, worker: Worker
) -> None:
    fail("<script>alert(1)</script> at \x1b[31mred\u202e", worker, action=action)
    fail("login failed: password=hunter", worker, action=action)
    fail({"token": "hunter"}, worker, action=action)
    roll_up(now=clock.now())
    urls = [reverse("console:now"), reverse("console:causes")]
    urls += [reverse("console:cause", args=[group.pk]) for group in FailureGroup.objects.all()]
    for url in urls:
        page = admin_client.get(url).content.decode()
        assert "<script>alert" not in page
        assert "hunter" not in page


@pytest.mark.parametrize("query", [{"within": "9y"}, {"before": "x"}, {"action": "a b"}])
def test_what_an_address_has_wrong_changes_nothing(
    admin_client: Client, failures: None, query: dict[str, str]
) -> None:
    group = FailureGroup.objects.get(sample="out of paper")
    assert admin_client.get(reverse("console:causes"), query).status_code == 200
    answer = admin_client.get(reverse("console:cause", args=[group.pk]), query)
    assert '<tr id="x-' in answer.content.decode()
    html(admin_client, "cause", 99_999, answer=404)
