"""Names as they are, landmarks, and the keyboard: what the markup itself can promise."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from orchestrator.core.models import Action, Worker
from tests.core.admin.pages import EXECUTIONS, make, page
from tests.factories import make_dlq_entry, make_worker

pytestmark = pytest.mark.django_db

REACHED = {"a", "button", "input", "select", "textarea", "summary"}
"""Elements that the keyboard reaches; a link only with an address."""


class Page(HTMLParser):
    """What a test asks about the elements of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.landmarks: list[str] = []
        self.out_of_reach: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        if tag in {"main", "header", "footer", "nav"}:
            self.landmarks.append(tag)
        is_clicked = any(name.startswith(("x-on:click", "hx-get")) for name in named)
        is_outside = "x-on:click.outside" in named
        is_reached = tag in REACHED and (tag != "a" or "href" in named)
        # a click beside a box closes it, as Escape does
        closes = named.get("id") == "changelist-filter-close"
        if is_clicked and not is_reached and not is_outside and not closes:
            self.out_of_reach.append(f"<{tag} {named}>")


@pytest.fixture
def paths(action: Action, worker: Worker) -> list[str]:
    execution = make(action, worker, "failed", result={"message": "no"})
    entry = make_dlq_entry(about=execution, now=timezone.now())
    rows: dict[str, Any] = {"execution": execution, "dlqentry": entry, "worker": worker}
    rows |= {"action": action, "pack": action.pack}
    details = [
        reverse(f"admin:orchestrator_{name}_change", args=[row.pk]) for name, row in rows.items()
    ]
    lists = [reverse(f"admin:orchestrator_{name}_changelist") for name in rows]
    dialog = reverse("admin:orchestrator_execution_again", args=[execution.pk])
    return [reverse("admin:index"), *lists, *details, dialog]


def test_everything_that_can_be_clicked_can_be_reached_with_the_keyboard(
    admin_client: Client, paths: list[str]
) -> None:
    for path in paths:
        html = admin_client.get(path).content.decode()
        assert Page(html).out_of_reach == [], path


def test_every_page_has_landmarks_and_a_way_past_the_menu(
    admin_client: Client, paths: list[str]
) -> None:
    for path in paths[:-1]:
        html = admin_client.get(path).content.decode()
        assert Page(html).landmarks.count("main") == 1, path
        assert html.index('href="#content"') < html.index("<nav")
        assert 'id="content"' in html


def test_a_dialog_is_one_to_screen_readers_and_its_way_out_is_no_verb(
    admin_client: Client, paths: list[str]
) -> None:
    html = admin_client.get(paths[-1]).content.decode()
    assert 'role="dialog"' in html
    assert 'aria-labelledby="dialog-title"' in html
    assert "Go back" in html
    assert not re.search(r">\s*(Cancel|Close)\s*<", html)


def test_names_stay_as_they_are(admin_client: Client, action: Action) -> None:
    worker = make_worker("w2", now=timezone.now())
    html = page(admin_client, "admin:orchestrator_worker_change", worker.pk)
    assert not re.search(r">\s*W2\s*<", html)
    html = page(admin_client, "admin:orchestrator_action_change", action.pk)
    assert "Core.echo" not in html
    entry = make_dlq_entry(now=timezone.now(), dlq_reason="max_retries_exceeded")
    for html in (
        page(admin_client, "admin:orchestrator_dlqentry_change", entry.pk),
        page(admin_client, "admin:orchestrator_dlqentry_changelist"),
    ):
        assert "max_retries_exceeded" in html
        assert "Max_retries_exceeded" not in html
        assert "Max Retries Exceeded" not in html


def test_no_page_leads_to_the_empty_log_of_django(admin_client: Client, paths: list[str]) -> None:
    for path in paths:
        assert "/history/" not in admin_client.get(path).content.decode(), path


def test_an_empty_list_offers_nothing_that_is_impossible(admin_client: Client) -> None:
    html = page(admin_client, EXECUTIONS)
    assert "No executions yet" in html
    assert "Create a new item" not in html
    assert "No executions match" in page(admin_client, EXECUTIONS, status="failed")


def test_what_is_not_there_has_a_page_of_its_own(admin_client: Client) -> None:
    answer = admin_client.get("/admin/orchestrator/nothing/")
    assert answer.status_code == 404
    assert "There is nothing at this address" in answer.content.decode()
