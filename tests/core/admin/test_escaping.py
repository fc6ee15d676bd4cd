"""What comes from outside is escaped."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from orchestrator.core import words
from orchestrator.core.admin import render
from orchestrator.core.admin.dead_letter_page import x_death_table
from orchestrator.core.models import (
    Action,
    DLQEntry,
    Worker,
)
from tests.core.admin.pages import ESCAPED, SCRIPT, make, page
from tests.factories import make_dlq_entry

pytestmark = pytest.mark.django_db


def test_parameters_and_result_are_escaped(
    admin_client: Client, action: Action, worker: Worker
) -> None:
    execution = make(
        action,
        worker,
        "failed",
        parameters={SCRIPT: SCRIPT},
        result={"message": SCRIPT, "traceback": f"{SCRIPT}\nline 2", SCRIPT: "a\nb"},
        wait_reason=SCRIPT,
        correlation_id=SCRIPT,
        requested_by=SCRIPT,
    )
    html = page(admin_client, "admin:orchestrator_execution_change", execution.pk)
    assert SCRIPT not in html
    assert ESCAPED in html


def test_dead_letter_is_escaped_and_dumped(admin_client: Client) -> None:
    entry = make_dlq_entry(
        now=timezone.now(),
        dlq_reason="message_invalid",
        detail=SCRIPT,
        original_queue=SCRIPT,
        x_death=[{"queue": SCRIPT, "count": 1, "routing-keys": [SCRIPT]}],
        headers={SCRIPT: SCRIPT},
        snapshot={"parameters": SCRIPT},
        raw_body=SCRIPT.encode() + b"\x00\xff",
        fingerprint="f",
    )
    in_list = page(admin_client, "admin:orchestrator_dlqentry_changelist")
    html = page(admin_client, "admin:orchestrator_dlqentry_change", entry.pk)
    assert SCRIPT not in in_list + html
    assert ESCAPED in in_list
    assert ESCAPED in html
    assert "00000000  3c 73 63 72 69 70 74 3e" in html


@pytest.mark.parametrize(
    ("verb", "resolution"),
    [
        ("resolve", "manually_resolved"),
        ("fail", "permanently_failed"),
        ("cancel", "cancelled"),
        ("annotate", "pending"),
    ],
)
def test_investigation_is_closed_with_a_note(
    admin_client: Client, verb: str, resolution: str
) -> None:
    entry = make_dlq_entry(now=timezone.now())
    path = reverse(f"admin:orchestrator_dlqentry_{verb}", args=[entry.pk])
    asked = admin_client.get(path)
    assert "A note is never changed" in asked.content.decode()
    admin_client.post(path, {"_form_submitted": "true", "note": ""})
    assert DLQEntry.objects.get().notes == []
    admin_client.post(path, {"_form_submitted": "true", "note": SCRIPT})
    row = DLQEntry.objects.get()
    assert row.resolution_status == resolution
    assert [(note["by"], note["text"]) for note in row.notes] == [("user:admin", SCRIPT)]
    html = page(admin_client, "admin:orchestrator_dlqentry_change", entry.pk)
    assert SCRIPT not in html
    assert ESCAPED in html
    assert ("Close as resolved?" in html or path in html) is (resolution == "pending")


def test_queue_of_investigations_leads_to_its_entries(admin_client: Client) -> None:
    old = make_dlq_entry(now=timezone.now() - timedelta(minutes=90), detail=SCRIPT)
    cycle = make_dlq_entry(now=timezone.now(), dlq_reason="dependency_cycle_detected")
    closed = make_dlq_entry(now=timezone.now())
    path = reverse("admin:orchestrator_dlqentry_cancel", args=[closed.pk])
    admin_client.post(path, {"_form_submitted": "true", "note": "n"})
    html = page(admin_client, "admin:orchestrator_investigationqueue_changelist")
    links = [
        html.index(reverse("admin:orchestrator_dlqentry_change", args=[entry.pk]))
        for entry in (cycle, old)
    ]
    assert links == sorted(links)
    assert reverse("admin:orchestrator_dlqentry_change", args=[closed.pk]) not in html
    assert SCRIPT not in html
    response = admin_client.get(
        reverse("admin:orchestrator_investigationqueue_change", args=[old.dlq_entry_uuid])
    )
    assert response["Location"] == reverse("admin:orchestrator_dlqentry_change", args=[old.pk])


def test_half_a_surrogate_pair_does_not_break_the_page(
    admin_client: Client, action: Action, worker: Worker
) -> None:
    execution = make(action, worker, parameters={"text": "\ud800"})
    page(admin_client, "admin:orchestrator_execution_change", execution.pk)


def test_x_death_is_a_table_with_a_row_for_each_death() -> None:
    html = x_death_table(
        [
            {
                "count": 2,
                "reason": "expired",
                "queue": "worker.1.executions",
                "exchange": "muster.executions",
                "routing-keys": ["execution.dispatch.worker.1"],
                "time": 1_790_000_000,
            },
            "not a death",
        ]
    )
    assert html.count("<tr>") == 3
    for text in ("expired", "worker.1.executions", "execution.dispatch.worker.1", "2026-09-21"):
        assert text in html


@pytest.mark.parametrize("deaths", [{"time": "soon"}, [{"time": 10**20}], [None], [[]], "text"])
def test_x_death_of_any_shape_is_shown(deaths: Any) -> None:
    assert "<table" in x_death_table(deaths)


def test_hex_dump_and_text_are_cut_off() -> None:
    assert "more bytes" in render.hex_dump(b"x" * (words.HEX_LIMIT_BYTES + 1))
    assert "more characters" in render.preformatted("x" * (render.TEXT_LIMIT_CHARACTERS + 1))
