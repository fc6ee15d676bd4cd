"""The admin's pages: they show everything, let nothing be edited, and escape what they show."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from orchestrator.access.models import ApiToken
from orchestrator.access.tokens import state
from orchestrator.core import executions
from orchestrator.core.admin import dashboard, listing, render
from orchestrator.core.admin.dead_letter_page import x_death_table
from orchestrator.core.errors import MusterError
from orchestrator.core.models import (
    Action,
    DLQEntry,
    Execution,
    ExecutionEvent,
    Pack,
    Tick,
    Worker,
    time_ordered,
)
from orchestrator.core.states import TERMINAL, ExecutionStatus

pytestmark = pytest.mark.django_db

SCRIPT = "<script>alert(1)</script>"
ESCAPED = "&lt;script&gt;alert(1)&lt;/script&gt;"
EXECUTIONS = "admin:orchestrator_execution_changelist"


@pytest.fixture
def action() -> Action:
    now = timezone.now()
    pack = Pack.objects.create(name="core", version="1.0.0", path="/packs/core", installed_at=now)
    return Action.objects.create(
        pack=pack,
        ref="core.sha256",
        runtime="python",
        entry_point="actions.files:sha256",
        parameters_schema={"type": "object", "title": SCRIPT},
        updated_at=now,
    )


@pytest.fixture
def worker() -> Worker:
    return Worker.objects.create(
        name="w1",
        incarnation=3,
        status="active",
        capacity=4,
        runtimes=["python"],
        labels={"zone": "a"},
        registered_at=timezone.now(),
        heartbeat_at=timezone.now(),
        host="node-1",
        pid=4711,
        version="0.1.0",
    )


def make(action: Action, worker: Worker, status: str = "running", **values: Any) -> Execution:
    """An execution in `status`, with the due times and timestamps that the database asks for."""
    now = timezone.now()
    return Execution.objects.create(
        action=action,
        action_ref=action.ref,
        status=status,
        **{
            "attempt": 1,
            "worker": worker,
            "worker_incarnation": worker.incarnation,
            "timeout_seconds": 60,
            "created_at": now,
            "scheduled_at": now,
            "started_at": now,
            "start_by": now + timedelta(seconds=310),
            "run_deadline_at": now + timedelta(seconds=70),
            "deadline_at": now + timedelta(days=1),
            "ended_at": now if status in TERMINAL else None,
            "reason": "worker_lost" if status in TERMINAL else "",
        }
        | values,
    )


def page(client: Client, name: str, *args: Any, **query: Any) -> str:
    response = client.get(reverse(name, args=args), query)
    assert response.status_code == 200
    return response.content.decode()


def shown(client: Client, **query: Any) -> set[Execution]:
    response = client.get(reverse(EXECUTIONS), query)
    assert response.status_code == 200
    return set(response.context["cl"].result_list)


# --- every page renders


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
        "dlqentry": DLQEntry.objects.create(
            subject_kind="execution",
            subject_id=execution.pk,
            dlq_reason="queue_ttl_expired",
            fingerprint="f",
            dlq_timestamp=now,
        ),
        "apitoken": ApiToken.objects.create(
            name="ci", prefix="mst_1234", digest="d", created_at=now
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
        "auth_group",
        "django_celery_beat_periodictask",
        "django_celery_beat_intervalschedule",
        "django_celery_beat_crontabschedule",
    ],
)
def test_pages_of_other_apps_render(admin_client: Client, model: str) -> None:
    page(admin_client, f"admin:{model}_changelist")
    page(admin_client, f"admin:{model}_add")


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
        "reason__exact=message_invalid",
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
    cards = dashboard.ended_executions("1h", timedelta(hours=1), timezone.now())
    assert [card.number for card in cards if "failed" in card.url] == ["2"]
    assert cards[0].note == "of the newest 2"


def test_dashboard_shows_nothing_to_who_may_view_nothing(
    client: Client, one_of_each: dict[str, Any]
) -> None:
    client.force_login(User.objects.create_user("guest", is_staff=True))
    assert "Open executions" not in page(client, "admin:index")


def test_anonymous_visitors_are_sent_to_the_login(client: Client) -> None:
    assert client.get(reverse(EXECUTIONS)).status_code == 302


# --- nothing can be edited


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


# --- finding


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
    assert shown(admin_client, q="sha256") == {first, second}
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
    assert shown(admin_client, worker=worker.pk, pack="core", action="core.sha256") == {
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


# --- what comes from outside is escaped


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
    entry = DLQEntry.objects.create(
        dlq_reason="message_invalid",
        detail=SCRIPT,
        original_queue=SCRIPT,
        x_death=[{"queue": SCRIPT, "count": 1, "routing-keys": [SCRIPT]}],
        headers={SCRIPT: SCRIPT},
        snapshot={"parameters": SCRIPT},
        raw_body=SCRIPT.encode() + b"\x00\xff",
        fingerprint="f",
        dlq_timestamp=timezone.now(),
    )
    in_list = page(admin_client, "admin:orchestrator_dlqentry_changelist")
    html = page(admin_client, "admin:orchestrator_dlqentry_change", entry.pk)
    assert SCRIPT not in in_list + html
    assert ESCAPED in in_list
    assert ESCAPED in html
    assert "00000000  3c 73 63 72 69 70 74 3e" in html


def dlq_entry(**values: Any) -> DLQEntry:
    known = {"dlq_reason": "queue_ttl_expired", "dlq_timestamp": timezone.now()}
    return DLQEntry.objects.create(**known | values)


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
    entry = dlq_entry()
    path = reverse(f"admin:orchestrator_dlqentry_{verb}", args=[entry.pk])
    asked = admin_client.get(path)
    assert "notes are never changed" in asked.content.decode()
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


def test_selected_investigations_are_closed(admin_client: Client) -> None:
    ids = [dlq_entry().pk for _ in range(3)]
    admin_client.post(
        reverse("admin:orchestrator_dlqentry_changelist"),
        {"action": "cancel_selected", "_selected_action": ids[:2]},
    )
    assert DLQEntry.objects.filter(resolution_status="cancelled").count() == 2


def test_queue_of_investigations_leads_to_its_entries(admin_client: Client) -> None:
    old = dlq_entry(dlq_timestamp=timezone.now() - timedelta(minutes=90), detail=SCRIPT)
    cycle = dlq_entry(dlq_reason="dependency_cycle_detected")
    closed = dlq_entry()
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
    assert "more bytes" in render.hex_dump(b"x" * (render.BODY_LIMIT_BYTES + 1))
    assert "more characters" in render.preformatted("x" * (render.TEXT_LIMIT_CHARACTERS + 1))


# --- words


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
    assert render.span(seconds) == text


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


# --- the verbs


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
    client: Client, action: Action, worker: Worker, cancelled: list[dict[str, Any]]
) -> None:
    viewer = User.objects.create_user("viewer", is_staff=True)
    viewer.user_permissions.add(Permission.objects.get(codename="view_execution"))
    client.force_login(viewer)
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
    assert "What happened to it" in html
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


def test_viewers_may_not_order_workers_about(client: Client, worker: Worker) -> None:
    viewer = User.objects.create_user("viewer", is_staff=True)
    viewer.user_permissions.add(Permission.objects.get(codename="view_worker"))
    client.force_login(viewer)
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


# --- tokens


def test_a_new_token_is_shown_once_and_kept_nowhere(
    admin_client: Client,
) -> None:
    url = reverse("admin:access_apitoken_add")
    response = admin_client.post(url, {"name": "ci", "expires_at_0": "", "expires_at_1": ""})
    shown_once = re.search(r'<pre [^>]*id="token">([^<]+)</pre>', response.content.decode())
    assert shown_once
    secret = shown_once[1]
    token = ApiToken.objects.get()
    assert len(secret) > 30
    assert secret.startswith(token.prefix)
    assert "no-store" in response["Cache-Control"]
    assert not any(secret in morsel.value for morsel in admin_client.cookies.values())
    detail = page(admin_client, "admin:access_apitoken_change", token.pk)
    assert secret not in detail


def test_a_token_cannot_be_made_expired(admin_client: Client) -> None:
    url = reverse("admin:access_apitoken_add")
    data = {"name": "ci", "expires_at_0": "2020-01-01", "expires_at_1": "00:00:00"}
    assert "This is past" in admin_client.post(url, data).content.decode()
    assert not ApiToken.objects.exists()


def test_a_token_with_a_refused_name_is_not_made(admin_client: Client) -> None:
    url = reverse("admin:access_apitoken_add")
    data = {"name": "zero\u200bwidth", "expires_at_0": "", "expires_at_1": ""}
    response = admin_client.post(url, data, follow=True)
    assert "printable characters" in response.content.decode()
    assert not ApiToken.objects.exists()


def test_a_token_is_revoked_by_its_button(
    admin_client: Client, one_of_each: dict[str, Any]
) -> None:
    token = one_of_each["apitoken"]
    url = reverse("admin:access_apitoken_revoke", args=[token.pk])
    assert admin_client.post(url, {"_form_submitted": "True"}).status_code == 302
    token.refresh_from_db()
    assert token.revoked_at is not None


def test_a_token_is_usable_until_it_expires_or_is_revoked() -> None:
    now = timezone.now()
    token = ApiToken(name="ci", expires_at=now + timedelta(seconds=1))
    assert state(token, now=now) == "usable"
    assert state(token, now=now + timedelta(seconds=1)) == "expired"
    token.revoked_at = now
    assert state(token, now=now) == "revoked"
