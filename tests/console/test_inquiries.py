"""The pages of inquiries: answered once, by whom they are for, and told to everybody else."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from orchestrator.access.models import AuditEvent
from orchestrator.core import clock
from orchestrator.inquiries import answering
from orchestrator.inquiries.models import Inquiry
from tests.console.costs import looking_alone
from tests.console.test_pages import html
from tests.inquiries import play

Person = Callable[[str], Client]
CANARY = "canary-77ab01"


@pytest.fixture
def now() -> datetime:
    return clock.now()


def answer(client: Client, inquiry: Inquiry, **values: str) -> str:
    """The page that follows an answer."""
    url = reverse("console:inquiry", args=[inquiry.pk])
    fields = {f"p-{name}": text for name, text in values.items()}
    return client.post(url, fields, follow=True).content.decode()


def test_an_inquiry_is_answered_once_and_a_second_answer_is_told_who_was_first(
    admin_client: Client, person: Person, now: datetime
) -> None:
    inquiry = play.asked(now=now)
    assert "Answered. What waited for it goes on." in answer(
        person("operator"), inquiry, approved="true"
    )
    second = answer(admin_client, inquiry, approved="false")
    assert "was answered by user:operator at " in second
    inquiry.refresh_from_db()
    assert inquiry.response == {"approved": True}
    assert AuditEvent.objects.filter(permission="admin.inquiry", decision="allowed").count() == 1


def test_what_the_schema_refuses_is_said_at_the_field_and_what_was_typed_stays(
    admin_client: Client, now: datetime
) -> None:
    schema = {
        "properties": {"copies": {"type": "integer", "maximum": 3}, "why": {"type": "string"}},
        "required": ["copies"],
    }
    inquiry = play.asked(now=now, schema=schema)
    page = answer(admin_client, inquiry, copies="9", why="it rained")
    assert "/copies: " in page
    assert 'id="id_p-copies_error"' in page
    assert 'value="it rained"' in page
    assert "<label" in page
    inquiry.refresh_from_db()
    assert inquiry.is_open


@pytest.mark.parametrize("schema", [{}, {"properties": {"size": {}}}])
def test_a_field_for_anything_begins_empty(
    admin_client: Client, now: datetime, schema: dict[str, Any]
) -> None:
    inquiry = play.asked(now=now, schema=schema)
    for url in (
        reverse("console:inquiry", args=[inquiry.pk]),
        reverse("admin:inquiries_inquiry_respond", args=[inquiry.pk]),
    ):
        page = admin_client.get(url).content.decode()
        (filled,) = re.findall(r"<textarea[^>]*>([^<]*)</textarea>", page)
        assert not filled.strip()


def test_who_is_not_assigned_is_told_so_and_refused(
    admin_client: Client, person: Person, now: datetime
) -> None:
    inquiry = play.asked(now=now, assignees=["user:someone-else"])
    page = html(admin_client, "inquiry", inquiry.pk)
    assert "Only user:someone-else may answer this inquiry." in page
    assert "p-approved" not in page
    assert "Only user:someone-else may answer" in answer(admin_client, inquiry, approved="true")
    inquiry.refresh_from_db()
    assert inquiry.is_open
    assert "needs the permission inquiries.respond" in answer(
        person("viewer"), play.asked(now=now), approved="true"
    )


def test_one_that_has_expired_says_so_and_takes_no_answer(
    admin_client: Client, now: datetime
) -> None:
    inquiry = play.asked(now=now - timedelta(hours=2), ttl_seconds=3600)
    assert "It expired at " in html(admin_client, "inquiry", inquiry.pk)
    assert "expired at " in answer(admin_client, inquiry, approved="true")
    inquiry.refresh_from_db()
    assert inquiry.response is None


def test_the_open_ones_come_first_and_those_the_first_to_expire(
    admin_client: Client, now: datetime
) -> None:
    _, late = play.held(now=now, prompt="Late?", ttl_seconds=7200)
    play.held(now=now, prompt="Soon?", ttl_seconds=120)
    play.held(now=now, prompt="Middle?", ttl_seconds=3600)
    page = html(admin_client, "inquiries")
    assert page.index("Soon?") < page.index("Middle?") < page.index("Late?")
    answering.cancel(late.pk, by=play.person("ada"), now=now, reason="no need")
    page = html(admin_client, "inquiries")
    assert page.index("Middle?") < page.index('id="over"') < page.index("Late?")
    assert "Late?" in html(admin_client, "inquiries", state="cancelled")
    assert "Nothing matches" in html(admin_client, "inquiries", state="responded")


@pytest.mark.parametrize("role", ["", "viewer", "author", "operator", "admin"])
def test_a_cancel_is_for_who_may_and_needs_a_reason(
    person: Person, now: datetime, role: str
) -> None:
    inquiry = play.asked(now=now)
    url = reverse("console:cancel_inquiry", args=[inquiry.pk])
    client, may = person(role), role in ("operator", "admin")
    drawn = client.get(reverse("console:inquiry", args=[inquiry.pk])).content.decode()
    assert ('<dialog id="cancel"' in drawn) == may
    client.post(url, {"reason": ""})
    assert Inquiry.objects.get().is_open
    status = client.post(url, {"reason": "not needed any more"}).status_code
    assert status == (302 if may else 404 if not role else 403)
    assert Inquiry.objects.get().reason == ("not needed any more" if may else "")


def test_a_secret_answer_is_shown_to_nobody(admin_client: Client, now: datetime) -> None:
    schema = {"properties": {"pin": {"type": "string", "secret": True}}}
    inquiry = play.asked(now=now, schema=schema)
    assert 'type="password"' in html(admin_client, "inquiry", inquiry.pk)
    for page in (
        answer(admin_client, inquiry, pin=CANARY),
        answer(admin_client, inquiry, pin=CANARY),
        html(admin_client, "inquiry", inquiry.pk),
        html(admin_client, "inquiries"),
    ):
        assert CANARY not in page
    inquiry.refresh_from_db()
    assert inquiry.response == {"pin": CANARY}


def test_the_strip_says_which_inquiries_expire_soon(
    admin_client: Client, person: Person, now: datetime
) -> None:
    inquiry = play.asked(now=now, prompt="Ship <b>it</b>?", ttl_seconds=300)
    page = html(admin_client, "now")
    assert "An inquiry expires soon, the first in " in page
    assert "Ship &lt;b&gt;it&lt;/b&gt;?" in page
    assert reverse("console:inquiry", args=[inquiry.pk]) in page
    assert "expires soon" not in html(person(""), "now")


def test_the_palette_finds_open_inquiries(
    admin_client: Client, person: Person, now: datetime
) -> None:
    play.asked(now=now, prompt="Deploy to production?")
    url = reverse("console:palette")

    def found(client: Client) -> Any:
        return [each["text"] for each in client.get(url, {"q": "deploy prod"}).json()["items"]]

    assert found(admin_client) == ["Inquiry: Deploy to production?"]
    assert found(person("")) == []


def test_pages_of_inquiries_take_no_more_queries_than_they_may(
    admin_client: Client, now: datetime
) -> None:
    inquiries = [play.held(now=now, prompt=f"Go {number}?")[1] for number in range(60)]
    for each in inquiries[:5]:
        answering.cancel(each.pk, by=play.person("ada"), now=now, reason="x")
    page = ""
    for name, args in (("inquiries", []), ("inquiry", [inquiries[-1].pk])):
        html(admin_client, name, *args)
        with looking_alone():
            page = html(admin_client, name, *args)
        assert len(page) <= 60_000
    assert page.count("Go 59?") >= 1


def test_one_that_is_not_there_is_said_to_be_none(admin_client: Client) -> None:
    missing = "00000000-0000-7000-8000-000000000000"
    assert f"No inquiry has the id {missing}" in html(admin_client, "inquiry", missing, answer=404)
    url = reverse("console:inquiry", args=[missing])
    assert admin_client.post(url, {}).status_code == 404
