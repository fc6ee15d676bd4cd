"""What is wrong is the first thing on a page."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import OperationalError
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from django_celery_beat.models import PeriodicTask

from orchestrator.core import clock, reachability
from orchestrator.core.models import Action, Execution, Tick, Worker
from tests.core.admin.pages import EXECUTIONS, make, page
from tests.principals import given, staff

pytestmark = pytest.mark.django_db

ALARM = 'class="m-alarm"'


@pytest.fixture(autouse=True)
def all_is_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reachability, "broker", reachability.Probe(lambda: True))
    Tick.objects.create(name="muster.check_timeouts", ran_at=timezone.now())


def content(html: str) -> str:
    return html.split("<main", 1)[1]


def test_a_healthy_installation_has_no_alarm(admin_client: Client, worker: Worker) -> None:
    assert ALARM not in page(admin_client, "admin:index")
    assert ALARM not in page(admin_client, EXECUTIONS)


@pytest.mark.parametrize("listing", ["admin:index", EXECUTIONS])
def test_a_dead_executor_is_the_first_thing_on_every_page(
    admin_client: Client, action: Action, worker: Worker, listing: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    make(action, worker)
    now = clock.now()
    monkeypatch.setattr(clock, "now", lambda: now)
    Tick.objects.update(ran_at=now - timedelta(seconds=47))
    html = content(page(admin_client, listing))
    alarm = html.index("No executor has worked for 47")
    assert alarm < html.index("running")
    Tick.objects.all().delete()
    assert "No executor has run yet" in page(admin_client, listing)


def test_a_dead_beat_is_told_once_its_notes_are_older_than_they_get(admin_client: Client) -> None:
    now = timezone.now()
    PeriodicTask.objects.update(last_run_at=now - timedelta(minutes=4))
    assert ALARM not in page(admin_client, "admin:index")
    PeriodicTask.objects.update(last_run_at=now - timedelta(minutes=6))
    assert "Beat has noted nothing for 6 min" in page(admin_client, "admin:index")


def test_maintenance_that_is_paused_is_named(admin_client: Client, worker: Worker) -> None:
    name = "muster.check_heartbeats"
    PeriodicTask.objects.filter(name=name).update(enabled=False)
    assert f"Paused in the schedule: {name}" in page(admin_client, "admin:index")


def test_a_broker_that_is_down_is_told_on_the_overview(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reachability, "broker", reachability.Probe(lambda: False))
    assert "The broker does not answer" in page(admin_client, "admin:index")


def test_silent_workers_are_named(admin_client: Client, worker: Worker) -> None:
    Worker.objects.update(heartbeat_at=clock.now() - timedelta(hours=1))
    assert "Silent for too long: w1" in page(admin_client, "admin:index")


def test_who_may_know_nothing_is_told_nothing(worker: Worker) -> None:
    Tick.objects.all().delete()
    Worker.objects.update(heartbeat_at=clock.now() - timedelta(hours=1))
    assert ALARM not in page(staff("guest"), "admin:index")
    assert "No executor has run yet" in page(staff("viewer", given("viewer")), "admin:index")


def test_a_page_says_that_the_database_is_away_and_tries_again(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object, **__: object) -> None:
        raise OperationalError("connection refused")

    monkeypatch.setattr(Execution.objects.__class__, "get_queryset", away)
    admin_client.raise_request_exception = False
    response = admin_client.get(reverse(EXECUTIONS))
    assert response.status_code == 503
    assert response["Retry-After"] == "5"
    html = response.content.decode()
    assert "The database does not answer" in html
    assert 'http-equiv="refresh"' in html
    assert "connection refused" not in html


def test_a_fault_of_ours_says_so_without_its_details(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ValueError("a detail")

    monkeypatch.setattr(Execution.objects.__class__, "get_queryset", broken)
    admin_client.raise_request_exception = False
    response = admin_client.get(reverse(EXECUTIONS))
    assert response.status_code == 500
    assert "Something went wrong here" in response.content.decode()
    assert "a detail" not in response.content.decode()
