"""Lists: search, filters, and how much they read."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from orchestrator.core.admin import listing
from orchestrator.core.models import (
    Action,
    Worker,
    time_ordered,
)
from tests.core.admin.pages import EXECUTIONS, make, page, shown

pytestmark = pytest.mark.django_db


def test_search_finds_by_start_of_id_action_and_correlation_id(
    admin_client: Client, action: Action, worker: Worker
) -> None:
    now = timezone.now()
    old = now - timedelta(days=3)
    first = make(action, worker, correlation_id="batch-1")
    pk = time_ordered.uuid7_floor(old)
    second = make(action, worker, pk=pk, created_at=old, correlation_id="batch-2")
    assert shown(admin_client, q=str(first.pk)) == {first}
    assert shown(admin_client, q=str(first.pk)[:13].upper()) == {first}
    assert shown(admin_client, q=first.pk.hex[:12]) == {first}
    assert shown(admin_client, q="batch-2") == {second}
    assert shown(admin_client, q="echo") == {first, second}
    assert shown(admin_client, q="batch") == set()
    assert shown(admin_client, q="----") == set()


def test_filters_narrow_the_list(admin_client: Client, action: Action, worker: Worker) -> None:
    running = make(action, worker)
    lost = make(action, worker, "abandoned")
    long_ago = timezone.now() - timedelta(days=3)
    old = make(
        action,
        worker,
        "completed",
        pk=time_ordered.uuid7_floor(long_ago),
        created_at=long_ago,
        reason="succeeded",
    )
    assert shown(admin_client, status="open") == {running}
    assert shown(admin_client, status="ended") == {lost, old}
    assert shown(admin_client, status="running") == {running}
    assert shown(admin_client, reason="worker_lost") == {lost}
    assert shown(admin_client, within="1h") == {running, lost}
    assert shown(admin_client, worker=worker.pk, pack="core", action="core.echo") == {
        running,
        lost,
        old,
    }
    assert shown(admin_client, pack="nothing") == set()
    day = f"{long_ago:%Y-%m-%d}"
    assert shown(admin_client, created_at_from_0=day, created_at_to_0=day) == {old}
    assert shown(admin_client, created_at_from_0="2026-02-31") == {running, lost, old}


@pytest.mark.usefixtures("still_clock")
def test_queries_of_the_list_do_not_grow_with_rows(
    admin_client: Client,
    action: Action,
    worker: Worker,
    django_assert_max_num_queries: Any,
) -> None:
    make(action, worker)
    with django_assert_max_num_queries(20) as captured:
        page(admin_client, EXECUTIONS)
    with_one_row = len(captured)
    for _ in range(30):
        make(action, worker)
    with django_assert_max_num_queries(with_one_row) as captured:
        page(admin_client, EXECUTIONS)
    assert not [query for query in captured if '"parameters"' in query["sql"]]


def test_counting_stops_at_its_limit(
    admin_client: Client, action: Action, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "COUNT_LIMIT", 3)
    for _ in range(5):
        make(action, worker)
    html = page(admin_client, EXECUTIONS)
    assert "the first" in html
    assert "filter to see others" in html
