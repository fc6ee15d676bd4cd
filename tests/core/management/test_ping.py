"""`--ping` of the commands that run services: who lives on this host, for supervisors."""

from __future__ import annotations

import socket
from datetime import timedelta
from typing import Any

import pytest

from orchestrator.automation.models import SensorService
from orchestrator.core import clock
from orchestrator.core.models import Service
from tests import commands

pytestmark = pytest.mark.django_db

HERE = socket.gethostname()
OF_CORE = [("executor", "executor"), ("gate", "gate"), ("beat", "beat")]
"""Commands whose services keep a row in core, and how they are asked about without a name."""


def make_service(
    kind: str,
    *,
    name: str = "",
    host: str = HERE,
    silent_seconds: float = 1,
    ended_seconds: float | None = None,
) -> None:
    now = clock.now()
    seen_at = now - timedelta(seconds=silent_seconds)
    ended = None if ended_seconds is None else now - timedelta(seconds=ended_seconds)
    Service.objects.create(
        kind=kind, name=name or kind, host=host, pid=7, seen_at=seen_at, stopped_at=ended,
        started_at=seen_at - timedelta(minutes=1),
    )  # fmt: skip


def make_sensor_service(*, silent_seconds: float) -> None:
    at = clock.now() - timedelta(seconds=silent_seconds)
    SensorService.objects.create(
        name="sensor", host=HERE, labels={}, started_at=at, heartbeat_at=at
    )


@pytest.mark.parametrize(("command", "kind"), OF_CORE)
def test_service_that_was_heard_of_a_moment_ago_is_alive(command: str, kind: str) -> None:
    make_service(kind)
    said = commands.printed(command, "--ping")
    assert said.startswith(f"{kind} {kind}: alive, heard of 1")
    assert f"on {HERE}, pid 7" in said


@pytest.mark.parametrize("kind", ["executor", "gate"])
def test_service_that_lives_and_does_not_get_on_is_not_well(kind: str) -> None:
    make_service(kind)
    Service.objects.update(trouble="muster-scheduler has failed for 34 s: TypeError")
    said = commands.refused(kind, "--ping")
    assert f"{kind} {kind}: alive, but muster-scheduler has failed for 34 s: TypeError" in said


@pytest.mark.parametrize(("command", "kind"), OF_CORE)
def test_service_that_is_silent_is_not(command: str, kind: str) -> None:
    make_service(kind, silent_seconds=13)
    said = commands.refused(command, "--ping")
    assert f"{kind} {kind}: silent for 13" in said
    assert "dead or frozen after 12 s" in said


def test_service_that_ended_by_itself_is_not_alive_although_it_was_just_heard_of() -> None:
    make_service("executor", ended_seconds=0.5)
    assert "executor executor: ended by itself 5" in commands.refused("executor", "--ping")


def test_one_that_was_started_again_is_alive_after_an_earlier_life_was_killed() -> None:
    make_service("executor", silent_seconds=300)
    make_service("executor")
    assert "alive" in commands.printed("executor", "--ping")


@pytest.mark.parametrize("kind", ["executor", "gate"])
def test_another_name_another_host_and_another_kind_do_not_count(kind: str) -> None:
    make_service(kind, name="second")
    make_service(kind, name="first", host="elsewhere")
    make_service("beat", name="first")
    said = commands.refused(kind, "--ping", "first")
    assert f"{kind} first: not heard of on {HERE} within the last hour; there are: second" in said
    assert "alive" in commands.printed(kind, "--ping", "second")


def test_none_at_all_says_so() -> None:
    assert commands.refused("beat", "--ping").endswith("within the last hour")


def test_sensor_service_is_alive_for_as_long_as_its_leases(settings: Any) -> None:
    lease_seconds = settings.MUSTER.sensor_lease_seconds
    make_sensor_service(silent_seconds=lease_seconds - 5)
    assert "sensor sensor: alive" in commands.printed("sensor", "--ping")
    SensorService.objects.all().delete()
    make_sensor_service(silent_seconds=lease_seconds + 5)
    assert "sensor sensor: silent" in commands.refused("sensor", "--ping")
