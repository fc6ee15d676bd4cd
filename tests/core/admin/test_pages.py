"""Every page renders, and lets nothing be edited."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from orchestrator.access.models import ApiToken
from orchestrator.core.admin import dashboard
from orchestrator.core.models import (
    Action,
    ExecutionEvent,
    Tick,
    Worker,
)
from orchestrator.core.models.time_ordered import uuid7_floor
from orchestrator.core.states import TERMINAL, ExecutionStatus
from tests.core.admin.pages import EXECUTIONS, make, page
from tests.factories import make_dlq_entry
from tests.principals import ROOT, service

pytestmark = pytest.mark.django_db


# --- every page renders ---------------------------------------------------------------------------


@pytest.fixture
def one_of_each(action: Action, worker: Worker) -> dict[str, Any]:
    now = timezone.now()
    execution = make(action, worker, correlation_id="batch-1")
    ExecutionEvent.objects.create(
        execution=execution,
        event="schedule",
        from_status="requested",
        to_status="scheduled",
        attempt=1,
        actor="executor",
        at=now,
    )
    Tick.objects.create(name="muster.check_timeouts", ran_at=now)
    return {
        "execution": execution,
        "worker": worker,
        "pack": action.pack,
        "action": action,
        "dlqentry": make_dlq_entry(about=execution, now=now),
        "apitoken": ApiToken.objects.create(
            name="ci", identity=service("ci"), prefix="mst_1234", digest="d", created_at=now
        ),
    }


@pytest.mark.parametrize("noun", ["execution", "worker", "pack", "action", "dlqentry", "apitoken"])
def test_list_and_detail_render(
    admin_client: Client, one_of_each: dict[str, Any], noun: str
) -> None:
    label = one_of_each[noun]._meta.app_label
    page(admin_client, f"admin:{label}_{noun}_changelist")
    page(admin_client, f"admin:{label}_{noun}_change", one_of_each[noun].pk)


@pytest.mark.parametrize(
    "model",
    [
        "auth_user",
        "django_celery_beat_periodictask",
        "django_celery_beat_intervalschedule",
        "django_celery_beat_crontabschedule",
    ],
)
def test_pages_of_other_apps_render(admin_client: Client, model: str) -> None:
    page(admin_client, f"admin:{model}_changelist")
    page(admin_client, f"admin:{model}_add")


@pytest.mark.parametrize("model", ["crontabschedule", "intervalschedule", "periodictask"])
@pytest.mark.parametrize("selected", ["abc", "9" * 30])
def test_selected_row_of_the_schedule_that_is_no_number_is_refused(
    admin_client: Client, model: str, selected: str
) -> None:
    url = reverse(f"admin:django_celery_beat_{model}_changelist")
    data = {"action": "delete_selected", "_selected_action": selected}
    assert admin_client.post(url, data).status_code == 400


def test_a_periodic_task_can_be_edited(admin_client: Client) -> None:
    from django_celery_beat.models import PeriodicTask

    task = PeriodicTask.objects.get(name="muster.check_timeouts")
    url = reverse("admin:django_celery_beat_periodictask_change", args=[task.pk])
    form = admin_client.get(url).context["adminform"].form
    data = {name: form[name].value() for name in form.fields if form[name].value() is not None}
    response = admin_client.post(url, {**data, "description": "changed"})
    assert response.status_code == 302, response.context["errors"]
    task.refresh_from_db()
    assert task.description == "changed"


@pytest.mark.parametrize("status", list(ExecutionStatus))
def test_detail_renders_in_every_status(
    admin_client: Client, action: Action, worker: Worker, status: ExecutionStatus
) -> None:
    execution = make(action, worker, status.value)
    html = page(admin_client, "admin:orchestrator_execution_change", execution.pk)
    assert status.value in html
    assert ("nobody: terminal" in html) == (status in TERMINAL)


def test_dashboard_counts_and_links(
    admin_client: Client, action: Action, worker: Worker, one_of_each: dict[str, Any]
) -> None:
    make(action, worker, "failed")
    html = page(admin_client, "admin:index")
    for link in (
        "?status=running",
        "?status=failed&amp;within=1h",
        "reason__exact=queue_ttl_expired",
    ):
        assert link in html
    assert "muster.check_timeouts" in html
    assert "on time" in html
    Tick.objects.update(ran_at=timezone.now() - timedelta(minutes=5))
    assert "late" in page(admin_client, "admin:index")


def test_dashboard_counts_no_more_than_the_newest(
    admin_client: Client, action: Action, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dashboard, "ENDED_LIMIT", 2)
    for _ in range(5):
        make(action, worker, "failed")
    title, cards = dashboard.ended_executions(timezone.now(), ROOT)
    [failed] = [card for card in cards if card.name == "failed"]
    assert (failed.number, failed.part) == ("2", "2 last hour")
    assert title.endswith("and ended: of the newest 2")


def test_dashboard_counts_what_ended_in_each_window_in_one_query(
    admin_client: Client,
    action: Action,
    worker: Worker,
    django_assert_num_queries: Any,
) -> None:
    now = timezone.now()
    for hours in (0, 2, 30):
        at = now - timedelta(hours=hours)
        make(action, worker, "failed", pk=uuid7_floor(at), created_at=at)
    with django_assert_num_queries(1):
        title, cards = dashboard.ended_executions(now, ROOT)
    [failed] = [card for card in cards if card.name == "failed"]
    assert (failed.number, failed.part) == ("2", "1 last hour")
    assert title == "Created in the last 24 hours, and ended"


def test_dashboard_has_no_card_for_a_zero_unless_it_matters(
    admin_client: Client, action: Action, worker: Worker
) -> None:
    html = page(admin_client, "admin:index")
    for _ in range(2):
        make(action, worker)
    numbers = dashboard.open_executions(timezone.now(), ROOT)
    box = dashboard.Box.of("Open executions", numbers)
    assert [(card.name, card.number) for card in box.cards] == [("running", "2")]
    assert box.zeros == "requested, scheduling, scheduled, canceling, overdue"
    nobody = dashboard.Box.of("Workers", [dashboard.Card(name="fresh", count=0, matters=True)])
    assert ([card.number for card in nobody.cards], nobody.zeros) == (["0"], "")
    assert html.count('class="m-number"') == 1  # fresh workers
    assert f"None: {box.zeros}." in page(admin_client, "admin:index")


def test_dashboard_groups_the_digits_of_its_numbers() -> None:
    assert dashboard.Card(name="running", count=123_456).number == "123,456"


def test_dashboard_shows_nothing_to_who_may_view_nothing(
    client: Client, one_of_each: dict[str, Any]
) -> None:
    client.force_login(User.objects.create_user("guest", is_staff=True))
    assert "Open executions" not in page(client, "admin:index")


def test_anonymous_visitors_are_sent_to_the_login(client: Client) -> None:
    assert client.get(reverse(EXECUTIONS)).status_code == 302


# --- nothing can be edited ------------------------------------------------------------------------


def test_status_cannot_be_changed_by_post(
    admin_client: Client, action: Action, worker: Worker
) -> None:
    execution = make(action, worker)
    url = reverse("admin:orchestrator_execution_change", args=[execution.pk])
    assert admin_client.post(url, {"status": "completed"}).status_code == 403
    execution.refresh_from_db()
    assert execution.status == "running"


@pytest.mark.parametrize("noun", ["execution", "worker", "pack", "action", "dlqentry"])
def test_nothing_can_be_added_or_deleted(
    admin_client: Client, one_of_each: dict[str, Any], noun: str
) -> None:
    pk = one_of_each[noun].pk
    assert admin_client.get(reverse(f"admin:orchestrator_{noun}_add")).status_code == 403
    url = reverse(f"admin:orchestrator_{noun}_delete", args=[pk])
    assert admin_client.post(url, {"post": "yes"}).status_code == 403
