"""What a page weighs, and what a browser need not fetch again."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest
from django.conf import settings
from django.templatetags.static import static
from django.test import Client
from django.urls import reverse

from orchestrator.core.models import Action, Worker
from settings import releases
from tests.core.admin.pages import EXECUTIONS, make, page

pytestmark = pytest.mark.django_db

LIMIT_BYTES = 100_000


def test_fifty_rows_with_messages_take_no_more_than_100_kilobytes(
    admin_client: Client, action: Action, worker: Worker
) -> None:
    result = {"message": "could not open /dev/printer7: no route to printer 7, tried 3 times"}
    for _ in range(50):
        make(action, worker, "failed", reason="action_failed", result=result)
    html = page(admin_client, EXECUTIONS)
    assert html.count("no route to printer 7") == 2 * 50
    assert len(html.encode()) <= LIMIT_BYTES


def test_pages_and_their_files_are_compressed_and_answers_of_the_api_are_not(
    admin_client: Client,
) -> None:
    accepts = {"Accept-Encoding": "gzip"}
    answer = admin_client.get(reverse(EXECUTIONS), headers=accepts)
    assert answer["Content-Encoding"] == "gzip"
    assert b"Executions" in gzip.decompress(answer.content)
    file = admin_client.get(static("unfold/css/styles.css"), headers=accepts)
    assert len(file.getvalue()) < 60_000  # of 330,000
    assert "Content-Encoding" not in admin_client.get("/api/v1/openapi.json", headers=accepts)


def test_files_are_fetched_once_for_each_release(admin_client: Client) -> None:
    html = page(admin_client, "admin:index")
    files = re.findall(r'(?:src|href)="(/static/[^"]+)"', html)
    assert len(files) >= 8
    assert all(each.startswith(f"{settings.STATIC_URL}") for each in files)
    for each in files:
        answer = admin_client.get(each)
        assert answer.status_code == 200, each
        assert "immutable" in answer["Cache-Control"]
        answer.close()


def test_another_release_has_another_address(tmp_path: Path) -> None:
    (tmp_path / "a.css").write_text("one")
    first = releases.fingerprint([tmp_path])
    assert first == releases.fingerprint([tmp_path])
    (tmp_path / "a.css").write_text("other")
    assert first != releases.fingerprint([tmp_path])
