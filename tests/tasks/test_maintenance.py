"""Ticks of beat, as tasks of an executor."""

from __future__ import annotations

import psycopg
import pytest
from django.db import connection

from orchestrator.core.models import Tick
from settings.celery import app
from tasks import maintenance
from tests.factories import NOW

NAME = "muster.check_timeouts"


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
@pytest.mark.usefixtures("database")
def test_tick_after_its_session_has_ended_runs(postgres_url: str) -> None:
    """Celery keeps the sessions of its threads, whatever became of them."""
    assert maintenance.__name__ in app.conf.include
    tick = app.tasks[NAME]
    tick()
    Tick.objects.update(ran_at=NOW)
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        ours = cursor.fetchone()
    with psycopg.connect(postgres_url, autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(%s, 5000)", ours)

    tick()

    assert Tick.objects.get(name=NAME).ran_at > NOW
