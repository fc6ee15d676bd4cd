"""The newest output on an execution's page: refreshed while it runs, and no longer."""

from __future__ import annotations

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from orchestrator.core import live_output
from orchestrator.core.live_output import Piece
from orchestrator.core.models import Action, Execution, Worker
from tests.core.admin.pages import ESCAPED, SCRIPT, make, page
from tests.principals import given, staff

pytestmark = pytest.mark.django_db


def write(execution: Execution, text: str, offset: int = 0, stream: str = "stdout") -> None:
    piece = Piece(execution.pk, execution.attempt, stream, offset, text.encode())
    live_output.write([piece], now=timezone.now())


def fragment(client: Client, execution: Execution) -> tuple[int, str]:
    url = reverse("admin:orchestrator_execution_output", args=[execution.pk])
    response = client.get(url)
    return response.status_code, response.content.decode()


def test_page_shows_the_newest_output_and_asks_for_more(
    admin_client: Client, action: Action, worker: Worker
) -> None:
    execution = make(action, worker)
    html = page(admin_client, "admin:orchestrator_execution_change", execution.pk)
    assert "Nothing yet" in html
    assert 'hx-trigger="every 2s"' in html
    write(execution, f"step 1\n{SCRIPT}\n", offset=1_000)
    status, html = fragment(admin_client, execution)
    assert status == 200
    assert "step 1" in html
    assert "after 1000 bytes" in html
    assert ESCAPED in html
    assert SCRIPT not in html


def test_what_has_ended_is_not_refreshed(
    admin_client: Client, action: Action, worker: Worker
) -> None:
    execution = make(action, worker, "completed")
    write(execution, "the end\n")
    status, html = fragment(admin_client, execution)
    assert status == 286
    assert "the end" in html
    assert "hx-trigger" not in html


def test_output_is_hidden_from_who_may_not_read_payloads(action: Action, worker: Worker) -> None:
    execution = make(action, worker)
    write(execution, "a payload")
    status, html = fragment(staff("viewer", given("viewer")), execution)
    assert status == 200
    assert "a payload" not in html
    assert "***" in html
    reader = staff("reader", given("viewer", packs=["another"]))
    status, html = fragment(reader, execution)
    assert "a payload" not in html
    assert status == 286
