"""The fitness of a worker, while its database takes no writes and afterwards."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import OperationalError, connection

from orchestrator.core import fleet
from orchestrator.core.models import Worker
from workers.agent import Agent
from workers.fitness import QUEUE_CHECK, Fitness

pytestmark = pytest.mark.django_db


def take_writes(does: bool) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"PRAGMA query_only = {'OFF' if does else 'ON'}")


def test_what_could_not_be_recorded_is_recorded_by_the_next_probe(w1: Agent) -> None:
    fitness = Fitness(w1)
    failures = {QUEUE_CHECK: "nobody consumes it"}
    take_writes(False)
    try:
        fitness.tell({QUEUE_CHECK}, failures)
    finally:
        take_writes(True)
    assert fitness.failing == {QUEUE_CHECK: ""}
    assert Worker.objects.get().failed_checks == {}

    fitness.tell({QUEUE_CHECK}, failures)
    assert fitness.failing == failures
    assert Worker.objects.get().failed_checks == failures
    fitness.tell({QUEUE_CHECK}, {})
    assert Worker.objects.get().failed_checks == {}


def test_check_that_passes_again_is_told_though_the_answer_to_its_failure_was_lost(
    w1: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitness = Fitness(w1)
    mark_unhealthy = fleet.mark_unhealthy

    def commit_and_fail(**about: Any) -> bool:
        mark_unhealthy(**about)
        raise OperationalError("the server closed the connection")

    monkeypatch.setattr("workers.fitness.connections.close_all", lambda: None)
    with monkeypatch.context() as lossy:
        lossy.setattr(fleet, "mark_unhealthy", commit_and_fail)
        fitness.tell({QUEUE_CHECK}, {QUEUE_CHECK: "nobody consumes it"})
    assert Worker.objects.get().status == "inactive"

    fitness.tell({QUEUE_CHECK}, {})
    assert Worker.objects.get().status == "active"
    assert fitness.failing == {}
