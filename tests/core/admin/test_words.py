"""How the pages say things."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.test import Client
from django.utils import formats, timezone
from django_celery_beat.models import PeriodicTask

from orchestrator.core import words
from orchestrator.core.admin import render
from orchestrator.core.models import (
    Action,
    Tick,
    Worker,
)
from orchestrator.core.shown.values import Happening
from tests.core.admin.pages import make, page

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


def test_load_tells_what_runs_from_what_waits(
    admin_client: Client, action: Action, worker: Worker
) -> None:
    for status in ("running", "running", "scheduled", "scheduled"):
        make(action, worker, status)
    Worker.objects.update(capacity=2)
    html = page(admin_client, "admin:orchestrator_worker_changelist")
    assert "2 of 2 slots, 2 waiting" in html
    assert ">Celery<" in html


def test_an_action_that_is_not_idempotent_is_not_marked_as_broken(
    admin_client: Client, action: Action
) -> None:
    html = page(admin_client, "admin:orchestrator_action_changelist")
    assert "is not run again" in html
    assert "cancel" not in html.split("<tbody", 1)[1].split("</tbody", 1)[0]


def test_maintenance_that_runs_is_shown_to_run_although_beat_notes_it_late(
    admin_client: Client,
) -> None:
    now = timezone.now()
    Tick.objects.create(name="muster.check_timeouts", ran_at=now - timedelta(seconds=2))
    PeriodicTask.objects.update(last_run_at=now - timedelta(seconds=170))
    html = page(admin_client, "admin:django_celery_beat_periodictask_changelist")
    row = html.split("muster.check_timeouts", 1)[1].split("</tr>", 1)[0]
    assert "2 min" not in row
    assert "s ago" in row


def test_what_a_process_did_to_a_step_at_once_is_one_line() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)

    def line(was: str, to: str, event: str, after_seconds: float = 0.0) -> Happening:
        return Happening(at, after_seconds, event, to, "executor", was=was, subject="wash")

    inner = [
        line("pending", "enqueued", "enqueue", 3.0),
        line("enqueued", "in_progress", "start"),
        line("in_progress", "complete", "complete", 4.0),
    ]
    folded = render._without_inner_states(inner)
    assert [(each.was, each.event, each.to, each.after_seconds) for each in folded] == [
        ("pending", "enqueue, start", "in_progress", 3.0),
        ("in_progress", "complete", "complete", 4.0),
    ]


def test_dates_of_djangos_own_pages_are_written_as_everywhere_else() -> None:
    at = datetime(2026, 11, 21, 22, 17, tzinfo=UTC)
    assert formats.date_format(at, "DATETIME_FORMAT") == "2026-11-21 22:17:00 UTC"
