"""Lists: search, filters, and how much they read."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from orchestrator.core import contents, cursors
from orchestrator.core.admin import listing
from orchestrator.core.models import (
    Action,
    Execution,
    Worker,
    time_ordered,
)
from tests.core.admin.pages import EXECUTIONS, make, page, shown
from tests.factories import make_dlq_entry
from tests.principals import given, staff

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
    assert shown(admin_client, q=f"{str(first.pk)[:13]}…{str(first.pk)[-4:]}") == {first}
    assert shown(admin_client, q="batch-2") == {second}
    assert shown(admin_client, q="echo") == {first, second}
    again = make(action, worker, correlation_id=str(first.pk))
    assert shown(admin_client, q=str(first.pk)) == {first, again}
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


@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "UTC", "Pacific/Niue"])
def test_range_of_days_may_be_all_of_the_calendar(
    admin_client: Client, action: Action, worker: Worker, zone: str, settings: Any
) -> None:
    settings.TIME_ZONE = zone
    execution = make(action, worker)
    first, last = "0001-01-01", "9999-12-31"
    assert shown(admin_client, created_at_from_0=first, created_at_to_0=last) == {execution}
    assert shown(admin_client, created_at_from_0=last) == set()
    assert shown(admin_client, created_at_to_0=first) == set()
    days = {"at_from_0": first, "at_from_1": "00:00:00", "at_to_0": last, "at_to_1": "23:59:59"}
    page(admin_client, "admin:access_auditevent_changelist", **days)


def test_nobody_sorts_a_list_by_a_column_without_a_link(
    admin_client: Client, action: Action, worker: Worker
) -> None:
    make(action, worker)
    for name in ("orchestrator_execution", "orchestrator_dlqentry", "automation_event"):
        url = reverse(f"admin:{name}_changelist")
        for number in range(10):
            rows = admin_client.get(url, {"o": number}).context["cl"].queryset
            assert rows.query.order_by in (["-id"], ["-pk"], ("-pk",), ("-id",)), (name, number)


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


def test_the_message_of_what_failed_is_in_the_list(
    admin_client: Client, action: Action, worker: Worker
) -> None:
    result = {"error": "OSError", "message": "no route to <printer 7>", "failed_by": "worker:w1"}
    make(action, worker, "failed", reason="action_failed", result=result)
    make(action, worker, "completed", result={"message": "all is well"})
    html = page(admin_client, EXECUTIONS)
    assert "no route to &lt;printer 7&gt;" in html
    assert "all is well" not in html


def test_messages_are_read_without_the_results_and_in_one_query(
    admin_client: Client, action: Action, worker: Worker, django_assert_max_num_queries: Any
) -> None:
    for n in range(5):
        make(action, worker, "failed", result={"message": f"no route to {n}"})
    with django_assert_max_num_queries(20) as captured:
        page(admin_client, EXECUTIONS)
    reading = [query["sql"] for query in captured if '"result"' in query["sql"]]
    assert len(reading) == 1
    assert "message" in reading[0]


def test_messages_need_the_permission_for_payloads(action: Action, worker: Worker) -> None:
    result = {"message": "no route to printer 7"}
    make(action, worker, "failed", reason="action_failed", result=result)
    html = page(staff("viewer", given("viewer")), EXECUTIONS)
    assert "printer 7" not in html
    assert "***" in html


def test_secrets_are_masked_before_a_message_is_cut(
    admin_client: Client, action: Action, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "s3cret" * 100
    execution = make(action, worker, "failed", result={"message": f"the key {secret} is wrong"})
    known = {execution.pk: contents.Secrets(values=[secret])}
    monkeypatch.setattr(contents, "secrets_of", lambda executions: known)
    html = page(admin_client, EXECUTIONS)
    assert "s3cret" not in html
    assert "the key ***" in html
    assert "* is wrong" in html


@pytest.mark.parametrize(
    ("query", "is_bounded"),
    [
        ({"reason": "worker_lost"}, True),
        ({"status": "failed"}, True),
        ({"worker": "1", "action": "core.echo"}, True),
        ({"status": "canceling"}, False),
        ({"action": "core.echo"}, False),
        ({"within": "1h"}, False),
        ({}, False),
    ],
)
def test_a_filter_without_an_index_looks_at_the_newest_rows_only(
    admin_client: Client,
    action: Action,
    worker: Worker,
    monkeypatch: pytest.MonkeyPatch,
    query: dict[str, str],
    is_bounded: bool,
) -> None:
    make(action, worker, "failed")
    monkeypatch.setattr(cursors, "LOOKED_AT_LIMIT", 2)
    for _ in range(2):
        make(action, worker)
    html = page(admin_client, EXECUTIONS, **query)
    assert ("Of the newest 2 executions" in html) is is_bounded


@pytest.mark.parametrize(
    ("query", "is_bounded"),
    [
        ({"dlq_reason__exact": "poison"}, True),
        ({"resolution_status__exact": "cancelled"}, True),
        ({"resolution_status__exact": "pending", "dlq_reason__exact": "poison"}, False),
        ({"dlq_reason__exact": ""}, False),
        ({}, False),
    ],
)
def test_entries_of_the_dlq_are_looked_at_likewise(
    admin_client: Client,
    monkeypatch: pytest.MonkeyPatch,
    query: dict[str, str],
    is_bounded: bool,
) -> None:
    monkeypatch.setattr(cursors, "LOOKED_AT_LIMIT", 2)
    for _ in range(3):
        make_dlq_entry(now=timezone.now())
    html = page(admin_client, "admin:orchestrator_dlqentry_changelist", **query)
    assert ("Of the newest 2 DLQ entries" in html) is is_bounded


def test_older_rows_are_looked_at_within_a_chosen_time(
    admin_client: Client, action: Action, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cursors, "LOOKED_AT_LIMIT", 2)
    long_ago = timezone.now() - timedelta(days=3)
    pk = time_ordered.uuid7_floor(long_ago)
    old = make(action, worker, "abandoned", pk=pk, created_at=long_ago)
    for _ in range(3):
        make(action, worker)
    assert shown(admin_client, reason="worker_lost") == set()
    day = f"{long_ago:%Y-%m-%d}"
    assert shown(admin_client, reason="worker_lost", created_at_to_0=day) == {old}


@pytest.mark.parametrize("statuses", [["canceling"], ["running", "canceling"]])
def test_open_statuses_are_read_from_the_index_of_what_is_open(statuses: list[str]) -> None:
    assert '"ended_at" IS NULL' in str(Execution.objects.in_status(*statuses).query)
    assert '"ended_at" IS NULL' not in str(Execution.objects.in_status("failed", *statuses).query)


def test_a_list_of_one_page_is_read_once(
    admin_client: Client, action: Action, worker: Worker, django_assert_max_num_queries: Any
) -> None:
    make(action, worker, "failed")
    with django_assert_max_num_queries(20) as captured:
        page(admin_client, EXECUTIONS, reason="worker_lost")
    asked = [query["sql"] for query in captured if "= 'worker_lost'" in query["sql"]]
    assert len(asked) == 1
