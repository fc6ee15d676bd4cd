"""The strip has what is not well, the worst first, and nothing else."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.test import Client
from django_celery_beat.models import IntervalSchedule, PeriodicTask

from orchestrator.console import attention, counted, kept
from orchestrator.console.look import Look
from orchestrator.console.pages import fleet
from orchestrator.core import alarms, clock, reachability, schedule
from orchestrator.core.models import Action, Service, Tick, Worker
from tests.console.conftest import make_service
from tests.factories import make_dlq_entry, make_execution, make_worker
from tests.principals import ROOT, principal


def titles(who: object = ROOT) -> list[str]:
    kept.clear()
    return [item.title for item in attention.items(Look(who))]  # type: ignore[arg-type]


def test_a_healthy_installation_needs_no_attention(worker: Worker, admin_client: Client) -> None:
    assert titles() == []
    assert b"Nothing needs attention." in admin_client.get("/console/").content


def test_the_only_executor_that_is_silent_comes_first(worker: Worker) -> None:
    make_dlq_entry(dlq_timestamp=clock.now())
    Service.objects.filter(kind="executor").delete()
    make_service("executor", silent_seconds=47)
    first, *others = titles()
    assert first.startswith("No executor is alive: executor has been silent for 47")
    assert others[-1].startswith("1 to look into")


def test_a_silent_executor_beside_another_is_named_and_does_not_alarm(worker: Worker) -> None:
    make_service("executor", name="second", silent_seconds=47)
    assert titles()[0].startswith("executor second has been silent for 47")


def test_an_executor_that_lives_and_does_not_get_on_is_named(worker: Worker) -> None:
    Service.objects.filter(kind="executor").update(trouble="muster-scheduler has failed for 34 s")
    (item,) = attention.items(Look(ROOT))
    assert item.title == "executor executor on node-1 does not get on"
    assert item.detail == "muster-scheduler has failed for 34 s. Its log has more."
    states = {row.life.kind: row.state for row in fleet.services(Look(ROOT))}
    assert states == {"executor": "in trouble", "beat": "alive"}


def test_of_one_that_was_killed_and_started_again_only_the_new_one_is_alive(worker: Worker) -> None:
    Service.objects.filter(kind="executor").delete()
    make_service("executor", name="first", silent_seconds=47)
    make_service("executor", name="second", silent_seconds=8)
    make_service("executor", name="second")
    (item,) = attention.items(Look(ROOT))
    assert item.title.startswith("executor first has been silent for 47")
    assert item.detail.endswith("1 other of its kind is alive.")
    services = fleet.services(Look(ROOT))
    assert sorted(row.life.name for row in services) == ["beat", "first", "second"]


@pytest.mark.parametrize("minutes", [1, 70])
def test_executors_and_beat_that_stopped_in_good_order_are_missed(
    worker: Worker, minutes: int
) -> None:
    at = clock.now() - timedelta(minutes=minutes)
    Service.objects.update(started_at=at - timedelta(hours=1), seen_at=at, stopped_at=at)
    Tick.objects.update(ran_at=at)
    PeriodicTask.objects.update(last_run_at=at - timedelta(minutes=5))
    executor, beat = titles()
    assert executor.startswith("No executor has worked for")
    assert beat.startswith("Beat has noted nothing for")


def test_a_restart_of_a_few_seconds_is_no_alarm(worker: Worker) -> None:
    at = clock.now() - timedelta(seconds=10)
    Service.objects.update(started_at=at - timedelta(hours=1), seen_at=at, stopped_at=at)
    Tick.objects.update(ran_at=at)
    PeriodicTask.objects.update(last_run_at=at)
    assert titles() == []


def test_a_beat_that_has_just_begun_may_have_noted_nothing_yet(worker: Worker) -> None:
    PeriodicTask.objects.update(last_run_at=clock.now() - timedelta(hours=1))
    assert titles() == []


def test_an_executor_that_lives_and_does_not_work_is_told(worker: Worker) -> None:
    Tick.objects.update(ran_at=clock.now() - timedelta(seconds=60))
    assert titles()[0].startswith("No executor has worked for 1 min")


def test_work_that_is_paused_in_the_schedule_is_named(worker: Worker) -> None:
    schedule.switch(alarms.EXECUTORS_SIGN, is_on=False)
    Tick.objects.update(ran_at=clock.now() - timedelta(seconds=60))
    assert titles() == [f"Paused in the schedule: {alarms.EXECUTORS_SIGN}"]


def test_executors_that_are_to_work_seldom_are_not_late(worker: Worker) -> None:
    row = PeriodicTask.objects.get(name=alarms.EXECUTORS_SIGN)
    row.interval = IntervalSchedule.objects.create(every=1, period=IntervalSchedule.MINUTES)
    row.save()
    Tick.objects.update(ran_at=clock.now() - timedelta(seconds=90))
    assert titles() == []


def test_a_broker_that_is_down_is_told(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reachability, "broker", reachability.Probe(lambda: False))
    assert "The broker does not answer" in titles()


def test_workers_that_are_silent_lost_or_unfit_are_named() -> None:
    now = clock.now()
    assert titles() == ["No worker takes new work"]
    make_worker("well", now=now)
    make_worker("silent", now=now - timedelta(hours=2))
    make_worker("lost", now=now, status="inactive", status_reason=counted.LOST)
    make_worker("left", now=now, status="inactive", status_reason="stopped")
    make_worker("unfit", now=now, failed_checks={"disk_free": "full"})
    assert titles() == [
        "Silent for too long: silent",
        "Lost within the hour: lost",
        "Fails a check of its machine: unfit",
    ]


def test_what_is_past_its_deadline_is_counted(action: Action, worker: Worker) -> None:
    now = clock.now()
    make_execution("requested", action=action, now=now, created_at=now - timedelta(days=2))
    assert titles() == ["1 past their deadline"]


def test_what_apps_warn_of_comes_last(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    warn = reachability.Probe(lambda: ["sensor shop.door: fails again and again"])
    monkeypatch.setattr(reachability, "warnings", warn)
    assert titles() == ["sensor shop.door: fails again and again"]


def test_who_may_know_nothing_is_told_nothing(action: Action) -> None:
    Service.objects.all().delete()
    make_dlq_entry(dlq_timestamp=clock.now())
    assert titles(principal()) == []
