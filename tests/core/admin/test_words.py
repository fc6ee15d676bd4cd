"""How the pages say things."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.test import Client
from django.utils import timezone

from orchestrator.core import words
from orchestrator.core.admin import render
from orchestrator.core.models import (
    Worker,
)
from tests.core.admin.pages import page

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.34, "340 ms"),
        (12.34, "12.3 s"),
        (12, "12 s"),
        (59.97, "1 min"),
        (192, "3 min 12 s"),
        (7_500, "2 h 5 min"),
        (187_200, "2 d 4 h"),
    ],
)
def test_spans_read_well(seconds: float, text: str) -> None:
    assert words.span(seconds) == text


def test_due_times_say_what_is_left_or_overdue() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert "in 12 s" in render.due(now + timedelta(seconds=12), now)
    assert "3 s overdue" in render.due(now - timedelta(seconds=3), now)
    assert "2026-01-01 00:00:00 UTC" in str(render.moment(now))


def test_a_stale_worker_is_called_stale(admin_client: Client, worker: Worker) -> None:
    list_page = "admin:orchestrator_worker_changelist"
    assert "fresh" in page(admin_client, list_page)
    Worker.objects.update(heartbeat_at=timezone.now() - timedelta(hours=1))
    html = page(admin_client, list_page)
    assert "stale" in html
    assert "1 h ago" in html
