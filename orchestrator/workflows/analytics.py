"""Performance of templates and their steps: numbers, durations, failures, retries.

One statement for each, the same for both databases, except for the SQL of a duration.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import connection

from orchestrator.core.models.time_ordered import CLOCK_SKEW, uuid7_floor


@dataclass(frozen=True, kw_only=True)
class TemplatePerformance:
    """Numbers of one template, for the tasks requested in a period."""

    template_id: int
    namespace: str
    name: str
    version: str
    tasks: int
    completed: int
    failed: int
    """In `error`, or blocked by failures."""
    duration_p50_seconds: float | None
    """From the request to the end, of those that completed."""
    duration_p95_seconds: float | None

    @property
    def failure_rate(self) -> float:
        """Of those that completed or failed."""
        over = self.completed + self.failed
        return self.failed / over if over else 0.0


@dataclass(frozen=True, kw_only=True)
class StepPerformance:
    """Numbers of one step of one template, for the tasks requested in a period."""

    template_id: int
    namespace: str
    template: str
    version: str
    step: str
    steps: int
    completed: int
    failed: int
    retries: int
    """Executions after the first one of a step."""
    executions: int
    """Those that have ended, in any way."""
    failed_executions: int
    duration_p50_seconds: float | None
    """From the claim to the end of an execution that completed."""
    duration_p95_seconds: float | None

    @property
    def failure_rate(self) -> float:
        """Of the executions that have ended."""
        return self.failed_executions / self.executions if self.executions else 0.0


_SECONDS = {
    "postgresql": "CAST(EXTRACT(EPOCH FROM {} - {}) AS double precision)",
    "sqlite": "((julianday({}) - julianday({})) * 86400)",
}

_TASKS = """
    WITH timed AS (
        SELECT template_id, state, CASE WHEN state = 'complete' THEN {seconds} END AS seconds
        FROM {tasks} AS task
    ),
    ranked AS (
        SELECT timed.*,
            ROW_NUMBER() OVER (PARTITION BY template_id, seconds IS NULL ORDER BY seconds) AS place,
            COUNT(seconds) OVER (PARTITION BY template_id) AS places
        FROM timed
    )
    SELECT template.id, template.namespace, template.name, template.version, COUNT(*),
        COUNT(CASE WHEN state = 'complete' THEN 1 END),
        COUNT(CASE WHEN state IN ('error', 'blocked_by_failures') THEN 1 END),
        MAX(CASE WHEN place = (50 * places + 99) / 100 THEN seconds END),
        MAX(CASE WHEN place = (95 * places + 99) / 100 THEN seconds END)
    FROM ranked JOIN workflows_tasktemplate AS template ON template.id = ranked.template_id
    GROUP BY template.id, template.namespace, template.name, template.version
    ORDER BY template.namespace, template.name, template.version
"""

_STEPS = """
    WITH chosen AS (
        SELECT step.id, task.template_id, step.template_step, step.state
        FROM {tasks} AS task JOIN workflows_step AS step ON step.task_id = task.id
    ),
    counted AS (
        SELECT template_id, template_step, COUNT(*) AS steps,
            COUNT(CASE WHEN state = 'complete' THEN 1 END) AS completed,
            COUNT(CASE WHEN state = 'error' THEN 1 END) AS failed
        FROM chosen GROUP BY template_id, template_step
    ),
    timed AS (
        SELECT chosen.template_id, chosen.template_step, chosen.id AS step_id, execution.ended_at,
            execution.status, CASE WHEN execution.status = 'completed' THEN {seconds} END AS seconds
        FROM chosen JOIN workflows_stepexecution AS attempt ON attempt.step_id = chosen.id
        JOIN orchestrator_execution AS execution ON execution.id = attempt.execution_id
    ),
    ranked AS (
        SELECT timed.*,
            ROW_NUMBER() OVER (
                PARTITION BY template_id, template_step, seconds IS NULL ORDER BY seconds
            ) AS place,
            COUNT(seconds) OVER (PARTITION BY template_id, template_step) AS places
        FROM timed
    ),
    tried AS (
        SELECT template_id, template_step, COUNT(*) - COUNT(DISTINCT step_id) AS retries,
            COUNT(ended_at) AS executions,
            COUNT(CASE WHEN ended_at IS NOT NULL AND status <> 'completed' THEN 1 END)
                AS failed_executions,
            MAX(CASE WHEN place = (50 * places + 99) / 100 THEN seconds END) AS p50,
            MAX(CASE WHEN place = (95 * places + 99) / 100 THEN seconds END) AS p95
        FROM ranked GROUP BY template_id, template_step
    )
    SELECT template.id, template.namespace, template.name, template.version,
        counted.template_step, counted.steps, counted.completed, counted.failed,
        COALESCE(tried.retries, 0), COALESCE(tried.executions, 0),
        COALESCE(tried.failed_executions, 0), tried.p50, tried.p95
    FROM counted JOIN workflows_tasktemplate AS template ON template.id = counted.template_id
    LEFT JOIN tried ON tried.template_id = counted.template_id
        AND tried.template_step = counted.template_step
    ORDER BY template.namespace, template.name, template.version, counted.template_step
"""


def templates(
    *, since: datetime, newest: int | None = None, template_id: int | None = None
) -> list[TemplatePerformance]:
    """Each template with tasks requested since then, or one; percentiles by nearest rank.

    `newest`: look at no more than so many tasks.
    """
    chosen = _Chosen(since=since, newest=newest, template_id=template_id)
    rows = _rows(_TASKS, ("ended_at", "created_at"), chosen)
    names = list(TemplatePerformance.__dataclass_fields__)
    return [TemplatePerformance(**dict(zip(names, row, strict=True))) for row in rows]


def steps(
    *, since: datetime, newest: int | None = None, template_id: int | None = None
) -> list[StepPerformance]:
    """Each step of those templates, or of one; all workers of a batch are one step."""
    names = list(StepPerformance.__dataclass_fields__)
    chosen = _Chosen(since=since, newest=newest, template_id=template_id)
    rows = _rows(_STEPS, ("execution.ended_at", "execution.started_at"), chosen)
    return [StepPerformance(**dict(zip(names, row, strict=True))) for row in rows]


@dataclass(frozen=True, kw_only=True)
class _Chosen:
    """The tasks that are looked at."""

    since: datetime
    newest: int | None = None
    template_id: int | None = None

    @property
    def sql(self) -> str:
        conditions = "id >= %s AND created_at >= %s"
        conditions += " AND template_id = %s" if self.template_id is not None else ""
        most = " ORDER BY id DESC LIMIT %s" if self.newest is not None else ""
        return f"(SELECT * FROM workflows_task WHERE {conditions}{most})"  # noqa: S608 - constants

    @property
    def values(self) -> list[Any]:
        floor = uuid7_floor(self.since - CLOCK_SKEW)
        return [
            floor if connection.features.has_native_uuid_field else floor.hex,
            connection.ops.adapt_datetimefield_value(self.since),
            *(value for value in (self.template_id, self.newest) if value is not None),
        ]


def _rows(sql: str, between: tuple[str, str], chosen: _Chosen) -> list[Any]:
    seconds = _SECONDS[connection.vendor].format(*between)
    with connection.cursor() as cursor:
        cursor.execute(
            sql.replace("{seconds}", seconds).replace("{tasks}", chosen.sql), chosen.values
        )
        return list(cursor.fetchall())
