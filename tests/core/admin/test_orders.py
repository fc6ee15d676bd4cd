"""What the buttons do."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from orchestrator.core import executions
from orchestrator.core.admin import batches
from orchestrator.core.errors import MusterError
from orchestrator.core.models import (
    Action,
    DLQEntry,
    Execution,
    Worker,
    WorkerEvent,
)
from tests.core.admin.pages import EXECUTIONS, make, page, select, shown
from tests.factories import make_dlq_entry
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
    data = {"_form_submitted": "True", "reason": "wrong file"}
    response = admin_client.post(url, data, headers={"HX-Request": "true"})
    assert response["HX-Redirect"].endswith("/change/")
    assert cancelled[0]["reason"] == "wrong file"
    assert cancelled[0]["execution_id"] == execution.pk
    assert cancelled[0]["actor"] == "user:admin"
    assert LogEntry.objects.filter(object_id=str(execution.pk)).exists()


def confirm(client: Client, listing: str, verb: str, rows: Any, **answers: str) -> str:
    """Select rows, answer the page that asks, and return the list."""
    asked = select(client, listing, verb, rows)
    assert 'name="_confirmed"' in asked
    return select(client, listing, verb, rows, _confirmed="yes", _form_submitted="True", **answers)


def test_cancelling_asks_for_a_reason(
    admin_client: Client, action: Action, worker: Worker, cancelled: list[dict[str, Any]]
) -> None:
    execution = make(action, worker)
    url = reverse("admin:orchestrator_execution_cancel", args=[execution.pk])
    html = admin_client.post(url, {"_form_submitted": "True"}).content.decode()
    assert "This field is required" in html
    assert cancelled == []


def test_the_reason_of_a_cancellation_is_kept_and_shown(
    admin_client: Client, action: Action, worker: Worker
) -> None:
    waiting = make(action, worker, "requested")
    running = make(action, worker)
    confirm(admin_client, EXECUTIONS, "cancel_selected", [waiting, running], reason="wrong file")
    assert set(Execution.objects.values_list("status", "cancel_reason")) == {
        ("cancelled", "wrong file"),
        ("canceling", "wrong file"),
    }
    for execution in (waiting, running):
        html = page(admin_client, "admin:orchestrator_execution_change", execution.pk)
        assert "wrong file" in html


def test_investigations_are_closed_in_bulk_only_with_a_note_and_a_confirmation(
    admin_client: Client,
) -> None:
    listing = "admin:orchestrator_dlqentry_changelist"
    entries = [make_dlq_entry(now=timezone.now()) for _ in range(3)]
    asked = select(admin_client, listing, "cancel_selected", entries[:2])
    assert "A closed entry cannot be opened again" in asked
    assert str(entries[1].dlq_entry_uuid) in asked
    assert str(entries[2].dlq_entry_uuid) not in asked
    forged = {"_confirmed": "yes", "_form_submitted": "True", "note": " "}
    select(admin_client, listing, "cancel_selected", entries[:2], **forged)
    assert not DLQEntry.objects.exclude(resolution_status="pending").exists()
    confirm(admin_client, listing, "cancel_selected", entries[:2], note="a drill")
    closed = DLQEntry.objects.filter(resolution_status="cancelled")
    assert [entry.notes[0]["text"] for entry in closed] == ["a drill", "a drill"]


def test_what_ended_runs_again_as_it_was_requested_once_for_each_form(
    admin_client: Client, action: Action, worker: Worker
) -> None:
    old = make(
        action, worker, "failed", priority=7, parameters={"message": "x"}, timeout_seconds=9.0
    )
    url = reverse("admin:orchestrator_execution_again", args=[old.pk])
    token = admin_client.get(url).content.decode().split('name="token" value="')[1].split('"')[0]
    for _ in range(2):
        form = {"_form_submitted": "True", "token": token, "reason": "new disk"}
        response = admin_client.post(url, form)
        assert response.status_code == 302
    new = Execution.objects.exclude(pk=old.pk).get()
    assert (new.action_ref, new.parameters, new.priority, new.timeout_seconds) == (
        old.action_ref,
        {"message": "x"},
        7,
        9.0,
    )
    assert (new.requested_by, new.correlation_id) == ("user:admin", str(old.pk))
    assert new.request_reason == "new disk"
    assert shown(admin_client, q=str(old.pk)) == {old, new}


def test_selected_failures_run_again_and_what_is_open_is_refused(
    admin_client: Client, action: Action, worker: Worker
) -> None:
    rows = [make(action, worker, status) for status in ("failed", "abandoned", "running")]
    html = confirm(admin_client, EXECUTIONS, "again_selected", rows, token="t")
    assert "Requested again: 2 of 3." in html
    assert "has not ended" in html
    assert Execution.objects.count() == 5


def hidden(html: str) -> dict[str, list[str]]:
    """The hidden fields of the page's form for the next request."""
    fields: dict[str, list[str]] = {}
    for name, value in re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', html):
        fields.setdefault(name, []).append(value)
    return fields


def test_all_that_match_are_changed_in_batches_and_nothing_that_comes_meanwhile(
    admin_client: Client, action: Action, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "ROWS_AT_ONCE", 2)
    running = [make(action, worker) for _ in range(5)]
    ended = make(action, worker, "failed")
    url = f"{reverse(EXECUTIONS)}?status=open"
    across = {"action": "cancel_selected", "_selected_action": ["x"], "select_across": "1"}
    asked = admin_client.post(url, across).content.decode()
    assert "5 executions</strong>: all that match the filter, 2 at a time" in asked
    later = make(action, worker)
    answers = {"_form_submitted": "True", "reason": "wrong\nfile"}
    first = admin_client.post(url, hidden(asked) | answers).content.decode()
    assert "2 of 5 executions</strong>: 2 done, 0 refused." in first
    second = admin_client.post(url, hidden(first) | answers).content.decode()
    assert "4 of 5 executions" in second
    last = admin_client.post(url, hidden(second) | answers, follow=True).content.decode()
    assert "Cancellations accepted: 5 of 5." in last
    assert set(Execution.objects.filter(status="canceling")) == set(running)
    assert {later, ended} == set(Execution.objects.filter(cancel_reason=""))


def test_what_a_batch_refuses_is_told_at_the_end(
    admin_client: Client, action: Action, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "ROWS_AT_ONCE", 1)
    refused = make(action, worker, "running")
    make(action, worker, "failed")
    url = reverse(EXECUTIONS)
    across = {"action": "again_selected", "_selected_action": ["x"], "select_across": "1"}
    html = admin_client.post(url, across).content.decode()
    for _ in range(3):
        html = admin_client.post(url, hidden(html) | {"token": "t"}, follow=True).content.decode()
    assert "Requested again: 1 of 2." in html
    assert f"{refused}: Execution {refused.pk} has not ended" in html


@pytest.mark.parametrize("forged", [{"_from": "x"}, {"_done": "many"}])
def test_a_batch_that_no_page_asked_for_is_refused(
    admin_client: Client, action: Action, worker: Worker, forged: dict[str, str]
) -> None:
    execution = make(action, worker)
    order = {"action": "cancel_selected", "_selected_action": ["x"], "select_across": "1"}
    order |= {"_confirmed": "yes", "_form_submitted": "True", "reason": "no"}
    answer = admin_client.post(reverse(EXECUTIONS), order | {"_from": str(execution.pk)} | forged)
    assert answer.status_code == 400
    assert not Execution.objects.exclude(cancel_reason="").exists()


def test_what_selected_investigations_are_about_runs_again(
    admin_client: Client, action: Action, worker: Worker
) -> None:
    old = make(action, worker, "failed")
    entries = [make_dlq_entry(about=old, now=timezone.now()), make_dlq_entry(now=timezone.now())]
    listing = "admin:orchestrator_dlqentry_changelist"
    html = confirm(admin_client, listing, "replay_selected", entries, token="t")
    assert "Requested again: 1 of 2." in html
    assert "about no execution" in html
    assert Execution.objects.get(correlation_id=str(old.pk)).status == "requested"
    assert DLQEntry.objects.pending().count() == 2


def test_the_page_of_an_investigation_leads_to_the_repair(
    admin_client: Client, action: Action, worker: Worker
) -> None:
    execution = make(action, worker, "failed")
    entry = make_dlq_entry(about=execution, now=timezone.now(), snapshot={"status": "failed"})
    html = page(admin_client, "admin:orchestrator_dlqentry_change", entry.pk)
    what_to_do = html.split("What to do", 1)[1].split("</section>", 1)[0]
    assert reverse("admin:orchestrator_execution_change", args=[execution.pk]) in what_to_do
    assert "<details>" in html


def test_viewers_may_not_run_again(action: Action, worker: Worker) -> None:
    client = staff("viewer", given("viewer"))
    old = make(action, worker, "failed")
    url = reverse("admin:orchestrator_execution_again", args=[old.pk])
    assert url not in page(client, "admin:orchestrator_execution_change", old.pk)
    data = {"_form_submitted": "True", "token": "t"}
    assert client.post(url, data).status_code == 403
    assert Execution.objects.count() == 1


def test_an_action_is_run_from_its_page_and_its_schema_is_asked(
    admin_client: Client, action: Action
) -> None:
    url = reverse("admin:orchestrator_action_run", args=[action.pk])
    data = {"_form_submitted": "True", "token": "t", "parameters": '{"message": 5}'}
    for text, why in (("[" * 100_000, "50 levels"), ("9" * 5_000, "4,300 digits")):
        assert why in admin_client.post(url, data | {"parameters": text}).content.decode()
    refused = admin_client.post(url, data).content.decode()
    assert "/parameters/message" in refused
    assert not Execution.objects.exists()
    admin_client.post(url, data | {"parameters": '{"message": "hello"}'})
    execution = Execution.objects.get()
    assert execution.parameters == {"message": "hello"}
    assert execution.requested_by == "user:admin"


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
    html = confirm(admin_client, EXECUTIONS, "cancel_selected", chosen, reason="wrong file")
    assert [call["reason"] for call in cancelled] == ["wrong file"] * 2
    assert "It is over" in html
    assert "Cancellations accepted: 1 of 2." in html


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
    html = confirm(
        admin_client,
        "admin:orchestrator_worker_changelist",
        "cordon_selected",
        [worker],
        reason="new disk",
    )
    assert "Cordoned: 1 of 1." in html
    assert WorkerEvent.objects.get().reason == "new disk"
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
