"""What beat schedules: each translates a tick into one call."""

from __future__ import annotations

from typing import Any

from celery import shared_task

from orchestrator import clock, maintenance


@shared_task(name="muster.check_timeouts")
def check_timeouts(**_: Any) -> None:
    maintenance.run("muster.check_timeouts", now=clock.asked_now())


@shared_task(name="muster.check_heartbeats")
def check_heartbeats(**_: Any) -> None:
    maintenance.run("muster.check_heartbeats", now=clock.asked_now())


@shared_task(name="muster.drain_dead_letters")
def drain_dead_letters(**_: Any) -> None:
    maintenance.run("muster.drain_dead_letters", now=clock.asked_now())


@shared_task(name="muster.detect_stale_tasks")
def detect_stale_tasks(**_: Any) -> None:
    maintenance.run("muster.detect_stale_tasks", now=clock.asked_now())


@shared_task(name="muster.retire_workers")
def retire_workers(**_: Any) -> None:
    maintenance.run("muster.retire_workers", now=clock.asked_now())
