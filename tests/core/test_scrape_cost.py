"""A scrape reads what is open, and nothing that only grows: the plans of its statements."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from orchestrator.automation.models import Enforcement
from orchestrator.core import clock
from orchestrator.core.metrics import history
from orchestrator.core.models import Execution, ExecutionEvent, HistoryMark
from orchestrator.core.states import ExecutionStatus
from orchestrator.workflows.models import TransitionRecord
from orchestrator.workflows.states import StepState, TaskState
from tests import databases
from tests.automation.play import make_rule, match, record
from tests.factories import make_dlq_entry, make_execution, make_step, make_task
from tests.waiting import wait_until

ROWS = 20_000
"""Enough for the planner: with a few, reading a whole table is the cheapest way."""

GROWING = {
    "automation_enforcement",
    "automation_event",
    "orchestrator_execution",
    "orchestrator_executionevent",
    "orchestrator_dlqentry",
    "orchestrator_workerevent",
    "workflows_task",
    "workflows_step",
    "workflows_transitionrecord",
}

LONG_AGO = "('01900000-0000-7000-8000-' || lpad(to_hex(number), 12, '0'))::uuid"
"""An id of its own that was made in 2024."""


@pytest.fixture(scope="module")
def _full(postgresql_lender: databases.Lender, django_db_blocker: Any) -> Iterator[None]:
    """Many rows that are over, and one of each kind that is not."""
    with (
        django_db_blocker.unblock(),
        postgresql_lender() as config,
        databases.as_default(config),
        connection.cursor() as cursor,
    ):
        now = clock.now()
        cursor.execute("SET session_replication_role = replica")
        multiply(cursor, make_execution(ExecutionStatus.COMPLETED, now=now), id="gen_random_uuid()")
        multiply(
            cursor,
            make_dlq_entry(
                resolution_status="manually_resolved", resolved_at=now, resolved_by="ada"
            ),
            id="number",
            dlq_entry_uuid="gen_random_uuid()",
        )
        task = make_task(TaskState.COMPLETE, now=now)
        multiply(cursor, task, id="gen_random_uuid()")
        step = make_step(StepState.COMPLETE, task=task, now=now)
        multiply(cursor, step, id=LONG_AGO, task_id="gen_random_uuid()")
        record_of_step = TransitionRecord.objects.create(
            task=task, step=step, event="complete", from_state="in_progress", to_state="complete",
            fence=1, actor="w1", processor="host 1", at=now,
        )  # fmt: skip
        multiply(
            cursor,
            record_of_step,
            id="nextval(pg_get_serial_sequence('{table}', 'id'))",
            task_id="gen_random_uuid()",
            step_id="gen_random_uuid()",
        )
        make_rule()
        [answer] = match(record(1))
        Enforcement.objects.filter(pk=answer.pk).update(
            state="rejected", reason="owner_refused", ended_at=now
        )
        multiply(
            cursor,
            answer.event,
            id=LONG_AGO,
            dedup_key="NULL",
            received_at="now() - interval '1 day'",
            evaluated_at="now()",
            matched="1",
        )
        multiply(
            cursor,
            answer,
            id=LONG_AGO,
            event_id="gen_random_uuid()",
            created_at="now() - interval '1 day'",
        )
        event = ExecutionEvent(
            execution=Execution.objects.all()[0],
            event="claim",
            from_status="scheduled",
            to_status="running",
            attempt=1,
            actor="w1",
            at=now - timedelta(days=1),
        )
        event.save()
        multiply(
            cursor,
            event,
            id="nextval(pg_get_serial_sequence('{table}', 'id'))",
            execution_id="gen_random_uuid()",
        )
        last = ExecutionEvent.objects.order_by("-pk").values("pk")[:1]
        HistoryMark.objects.update(counted_to=last, seen_to=last)
        cursor.execute("SET session_replication_role = origin")
        make_execution(now=now)
        make_dlq_entry(now=now)
        make_task(TaskState.STEPS_IN_PROCESS, now=now)
        record(2)
        cursor.execute("ANALYZE")
        yield


def multiply(cursor: Any, row: Any, **columns: str) -> None:
    """Write ROWS copies of a row, with these expressions; `number` counts them."""
    table = row._meta.db_table
    names = [field.column for field in row._meta.concrete_fields]
    values = ", ".join(
        columns[name].format(table=table) if name in columns else f'"{name}"' for name in names
    )
    quoted = ", ".join(f'"{name}"' for name in names)
    cursor.execute(
        f"""
        INSERT INTO {table} ({quoted}) SELECT {values}
        FROM (SELECT * FROM {table} LIMIT 1) AS row,
            generate_series(1000, 1000 + {ROWS}) AS number
        """  # noqa: S608 - every name is of our own models
    )


def scanned(sql: str) -> set[str]:
    """The tables that a statement reads from end to end."""
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (FORMAT JSON) {sql}")
        (plan,) = cursor.fetchone()
    nodes = [(json.loads(plan) if isinstance(plan, str) else plan)[0]["Plan"]]
    tables = set()
    while nodes:
        node = nodes.pop()
        nodes += node.get("Plans", [])
        if node["Node Type"] == "Seq Scan":
            tables.add(node["Relation Name"])
    return tables


@pytest.mark.usefixtures("_full")
def test_a_scrape_reads_no_growing_table_from_end_to_end(settings: Any) -> None:
    settings.MUSTER = replace(settings.MUSTER, metrics_access="loopback")
    with CaptureQueriesContext(connection) as scrape:
        assert Client().get("/metrics").status_code == 200
    statements = [query["sql"] for query in scrape if query["sql"].lstrip()[:6] == "SELECT"]
    assert len(statements) >= 8
    assert {sql: found for sql in statements if (found := scanned(sql) & GROWING)} == {}


@pytest.mark.usefixtures("_full")
def test_counting_reads_the_new_events_alone() -> None:
    execution = Execution.objects.open().get()
    for _ in range(3):
        ExecutionEvent.objects.create(
            execution=execution,
            event="schedule",
            from_status="requested",
            to_status="scheduled",
            attempt=1,
            actor="executor",
            at=clock.now(),
        )
    with CaptureQueriesContext(connection) as counting:
        assert wait_until(lambda: history.count(now=clock.now())) == 3
    statements = [query["sql"] for query in counting if "executionevent" in query["sql"]]
    assert len(statements) >= 5
    assert {sql: found for sql in statements if (found := scanned(sql) & GROWING)} == {}
