"""What the buttons do."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from orchestrator.core import executions
from orchestrator.core.errors import MusterError
from orchestrator.core.models import (
    Action,
    Worker,
)
from tests.core.admin.pages import EXECUTIONS, make, page
from tests.principals import given, staff

pytestmark = pytest.mark.django_db


@pytest.fixture
def cancelled(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What `executions.cancel` was asked for, instead of doing it."""
    calls: list[dict[str, Any]] = []
    monkeypatch.setattr(executions, "cancel", lambda **call: calls.append(call))
    return calls


def test_looking_at_the_dialog_cancels_nothing(
    admin_client: Client, action: Action, worker: Worker, cancelled: list[dict[str, Any]]
) -> None:
    execution = make(action, worker)
    html = page(admin_client, "admin:orchestrator_execution_cancel", execution.pk)
    assert "Stop this execution?" in html
    assert cancelled == []


def test_cancel_button_calls_the_verb(
    admin_client: Client, action: Action, worker: Worker, cancelled: list[dict[str, Any]]
) -> None:
    execution = make(action, worker)
    url = reverse("admin:orchestrator_execution_cancel", args=[execution.pk])
    response = admin_client.post(url, {"_form_submitted": "True"}, headers={"HX-Request": "true"})
    assert response["HX-Redirect"].endswith("/change/")
    assert cancelled[0]["execution_id"] == execution.pk
    assert cancelled[0]["actor"] == "user:admin"
    assert LogEntry.objects.filter(object_id=str(execution.pk)).exists()


def test_what_has_ended_has_no_cancel_button(
    admin_client: Client, action: Action, worker: Worker
) -> None:
    for status, offered in (("running", True), ("completed", False)):
        execution = make(action, worker, status)
        html = page(admin_client, "admin:orchestrator_execution_change", execution.pk)
        assert ("Cancel execution" in html) is offered


def test_bulk_cancel_goes_on_after_an_error_and_shows_it(
    admin_client: Client,
    action: Action,
    worker: Worker,
    cancelled: list[dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chosen = [make(action, worker) for _ in range(2)]

    def refuse_first(**call: Any) -> None:
        cancelled.append(call)
        if len(cancelled) == 1:
            raise MusterError("It is over")

    monkeypatch.setattr(executions, "cancel", refuse_first)
    data = {"action": "cancel_selected", "_selected_action": [str(each.pk) for each in chosen]}
    html = admin_client.post(reverse(EXECUTIONS), data, follow=True).content.decode()
    assert len(cancelled) == 2
    assert "It is over" in html
    assert "1 cancellation was accepted" in html


def test_viewers_may_not_cancel(
    action: Action, worker: Worker, cancelled: list[dict[str, Any]]
) -> None:
    client = staff("viewer", given("viewer"))
    execution = make(action, worker)
    html = page(client, "admin:orchestrator_execution_change", execution.pk)
    assert "Cancel execution" not in html
    url = reverse("admin:orchestrator_execution_cancel", args=[execution.pk])
    assert client.post(url, {"_form_submitted": "True"}).status_code == 403
    assert cancelled == []


def test_worker_is_cordoned_drained_and_uncordoned_with_a_reason(
    admin_client: Client, worker: Worker
) -> None:
    for verb, reason in (("cordon", "new disk"), ("drain", "still"), ("uncordon", "done")):
        url = reverse(f"admin:orchestrator_worker_{verb}", args=[worker.pk])
        assert admin_client.get(url).status_code == 200
        data = {"_form_submitted": "True", "reason": reason}
        assert admin_client.post(url, data).status_code == 302
    worker.refresh_from_db()
    assert (worker.status, worker.cordoned) == ("draining", False)
    html = page(admin_client, "admin:orchestrator_worker_change", worker.pk)
    assert "History" in html
    for told in ("new disk", "user:admin", "uncordoned"):
        assert told in html


def test_worker_has_only_the_buttons_that_would_change_something(
    admin_client: Client, worker: Worker
) -> None:
    def offered() -> set[str]:
        html = page(admin_client, "admin:orchestrator_worker_change", worker.pk)
        verbs = ("cordon", "uncordon", "drain", "retire")
        urls = {v: reverse(f"admin:orchestrator_worker_{v}", args=[worker.pk]) for v in verbs}
        return {verb for verb, url in urls.items() if url in html}

    assert offered() == {"cordon", "drain"}
    Worker.objects.update(cordoned=True, status="draining")
    assert offered() == {"uncordon"}
    Worker.objects.update(status="inactive", gone_at=timezone.now())
    assert offered() == {"uncordon", "retire"}


def test_selected_workers_are_cordoned_and_retired_ones_are_not_listed(
    admin_client: Client, worker: Worker
) -> None:
    Worker.objects.create(name="long ago", retired_at=timezone.now())
    changelist = reverse("admin:orchestrator_worker_changelist")
    data = {"action": "cordon_selected", "_selected_action": [str(worker.pk)]}
    html = admin_client.post(changelist, data, follow=True).content.decode()
    assert "Cordoned: w1." in html
    assert "long ago" not in html
    assert "long ago" in admin_client.get(changelist, {"retired": "yes"}).content.decode()


def test_viewers_may_not_order_workers_about(worker: Worker) -> None:
    client = staff("viewer", given("viewer"))
    url = reverse("admin:orchestrator_worker_cordon", args=[worker.pk])
    data = {"_form_submitted": "True", "reason": "x"}
    assert client.post(url, data).status_code == 403
    worker.refresh_from_db()
    assert not worker.cordoned


def test_an_action_is_switched_off_and_on(admin_client: Client, action: Action) -> None:
    for verb, enabled in (("disable", False), ("enable", True)):
        url = reverse(f"admin:orchestrator_action_{verb}", args=[action.pk])
        assert admin_client.get(url).status_code == 200
        assert admin_client.post(url, {"_form_submitted": "True"}).status_code == 302
        action.refresh_from_db()
        assert action.enabled is enabled
