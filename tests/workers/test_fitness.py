"""The fitness of a worker, while its database takes no writes and afterwards."""

from __future__ import annotations

import pytest
from django.db import connection

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
    assert fitness.failing == {}
    assert Worker.objects.get().failed_checks == {}

    fitness.tell({QUEUE_CHECK}, failures)
    assert fitness.failing == failures
    assert Worker.objects.get().failed_checks == failures
    fitness.tell({QUEUE_CHECK}, {})
    assert Worker.objects.get().failed_checks == {}
