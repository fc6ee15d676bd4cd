"""Muster's side of the soak: some work of each kind, and the sizes of its tables. Called by
`muster_side`, with its settings."""

from __future__ import annotations

import time
from typing import Any

from django.apps import apps
from django.db import connection

from benchmarks.automation_side import install_alert_rules, record_events
from benchmarks.workflow_side import install_templates, request
from orchestrator.automation import rules
from orchestrator.automation.rules import NewRule
from orchestrator.core import clock, executions
from orchestrator.core.executions import NewExecution
from orchestrator.core.investigations import closing
from orchestrator.core.models import DLQEntry, Execution

CLIENT = "soak"
ONE_FAILS_IN, ONE_PRINTS_IN = 20, 10
"""Of the executions that are asked for."""
STEPS = 3
EVENTS, KINDS = 5, 5
ASK_SECONDS = 10


def begin_soak() -> None:
    """Install what the work is about: a template, rules, and a timer of one second."""
    install_templates(sizes=[STEPS])
    install_alert_rules(rules_count=KINDS)
    every_second = NewRule(
        ref="bench.each-second",
        trigger_type="core.interval",
        trigger_parameters={"every_seconds": 1},
        action_ref="core.noop",
    )
    rules.install(every_second, now=clock.now())


def soak(*, seconds: float, rate: int) -> None:
    """For some seconds, so many executions in each, a question that nobody answers among them, and
    a task and events. Investigations that were opened are closed, as an operator does."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        began = time.monotonic()
        executions.request_many(_some(rate), requested_by=CLIENT, now=clock.now())
        request(f"linear-{STEPS}")
        record_events(count=EVENTS, kinds=KINDS)
        time.sleep(max(0.0, min(left, began + 1 - time.monotonic())))
    _close_investigations()


def _some(rate: int) -> list[NewExecution]:
    question = {"prompt": "Go on?", "schema": {}, "ttl_seconds": ASK_SECONDS,
                "on_timeout": "complete", "default": {}}  # fmt: skip
    others = [NewExecution(action_ref="core.ask", parameters=question)]
    others += [NewExecution(action_ref="core.fail")] * max(1, rate // ONE_FAILS_IN)
    prints = {"argv": ["echo", "some output"]}
    others += [NewExecution(action_ref="core.shell", parameters=prints)] * max(
        1, rate // ONE_PRINTS_IN
    )
    return others + [NewExecution(action_ref="core.noop")] * max(0, rate - len(others))


def _close_investigations() -> None:
    for id in DLQEntry.objects.pending().values_list("dlq_entry_uuid", flat=True):
        closing.close(
            id, resolution=DLQEntry.Resolution.MANUALLY_RESOLVED, now=clock.now(), actor=CLIENT
        )


def table_rows() -> dict[str, int]:
    """The number of rows of each table."""
    return {
        model._meta.db_table: model._base_manager.count()
        for model in apps.get_models(include_auto_created=True)
        if model._meta.managed
    }


def database_bytes() -> int:
    """The size of the database."""
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("SELECT pg_database_size(current_database())")
        else:
            cursor.execute(
                "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()"
            )
        row: Any = cursor.fetchone()
    return int(row[0])


def open_executions() -> int:
    """The number of executions that have not ended."""
    return Execution.objects.open().count()
