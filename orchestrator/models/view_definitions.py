"""The database's views, in both databases' words, and when they are made.

They hold nothing, so no migration is about them: all are dropped before one of ours runs, and made
again with the last one. Neither database lets a table be rebuilt under a view of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.db import connections, transaction
from django.db.migrations.executor import MigrationExecutor

from orchestrator.models.staleness import StalenessDefault

APP = "orchestrator"

BASES = """
    CASE entry.dlq_reason
        WHEN 'dependency_cycle_detected' THEN 1000
        WHEN 'max_retries_exceeded' THEN 500
        WHEN 'poison' THEN 500
        WHEN 'staleness_timeout' THEN 100
        WHEN 'worker_unavailable' THEN 50
        WHEN 'manual_dlq' THEN 10
        ELSE 0
    END
"""
"""What each reason counts in the queue of investigations; a minute counts one."""

AGE_LIMIT = 10_000
WARNING_FROM = 0.8


def _limits(*, scopes: str, minutes: str, text: str, flag: str, named: str) -> str:
    """`text` and `flag` name a key of the lifecycle with `{}`."""
    action = f"COALESCE({text.format('staleness_action')}, 'dlq')"
    return f"""
        SELECT template.id || ':' || scope.environment || ':' || standard.limit_name AS key,
            template.id AS template_id, scope.environment, {named} AS named, standard.limit_name,
            COALESCE({minutes}, standard.minutes) AS minutes,
            CASE standard.limit_name WHEN 'duration' THEN {flag.format("auto_dlq_on_timeout")}
                ELSE {action} = 'dlq' END AS opens_entry,
            CASE standard.limit_name WHEN 'duration' THEN {flag.format("auto_fail_on_timeout")}
                ELSE {action} IN ('dlq', 'error') END AS moves_to_error
        FROM orchestrator_tasktemplate AS template {scopes}
        CROSS JOIN orchestrator_stalenessdefault AS standard
    """  # noqa: S608 - made of constants


def _monitoring(*, minutes_since: str, larger: str, collected: str, looked_up: str) -> str:
    """`minutes_since` takes a column with `{}`, `looked_up` a key; `larger` is the function of two,
    `collected` makes one object of all limits of a template: one join then finds them."""

    def allowed(limit: str) -> str:
        own, base = f"task.environment || ':' || {limit}", f"':' || {limit}"
        return f"COALESCE({looked_up.format(own)}, {looked_up.format(base)})"

    return f"""
        WITH allowed AS (
            SELECT template_id, {collected} AS minutes FROM v_task_staleness_limits
            GROUP BY template_id
        ),
        timed AS (
            SELECT task.id AS task_uuid, template.namespace, template.name AS task_name,
                template.version AS template_version, task.environment,
                task.state AS current_state, task.priority, task.correlation_id,
                {larger}(0, {minutes_since.format("task.clock_started_at")})
                    AS time_in_state_minutes,
                {allowed("task.state")} AS staleness_threshold_minutes,
                {minutes_since.format("task.created_at")} AS task_age_minutes,
                {allowed("'duration'")} AS max_duration_minutes,
                EXISTS (
                    SELECT 1 FROM orchestrator_dlqentry AS entry
                    WHERE entry.task_id = task.id AND entry.resolution_status = 'pending'
                ) AS has_pending_entry
            FROM orchestrator_task AS task
            JOIN orchestrator_tasktemplate AS template ON template.id = task.template_id
            JOIN allowed ON allowed.template_id = task.template_id
            WHERE task.ended_at IS NULL
        ),
        rated AS (
            SELECT timed.*, {larger}(
                COALESCE(time_in_state_minutes / staleness_threshold_minutes, 0),
                task_age_minutes / max_duration_minutes
            ) AS used
            FROM timed
        )
        SELECT rated.*, CASE WHEN used >= 1 THEN 'stale' WHEN used >= {WARNING_FROM} THEN 'warning'
            ELSE 'healthy' END AS health_status
        FROM rated ORDER BY used DESC
    """  # noqa: S608 - made of constants


def _dashboard(*, minutes: str) -> str:
    counts = ", ".join(
        f"COUNT(CASE WHEN resolution_status = '{status}' THEN 1 END) AS {column}"
        for status, column in {
            "pending": "pending",
            "manually_resolved": "manually_resolved",
            "permanently_failed": "permanent_failures",
            "cancelled": "cancelled",
        }.items()
    )
    return f"""
        SELECT dlq_reason, COUNT(*) AS total_entries, {counts},
            MIN(dlq_timestamp) AS oldest_entry, MAX(dlq_timestamp) AS newest_entry,
            AVG({minutes}) AS avg_resolution_time_minutes
        FROM orchestrator_dlqentry GROUP BY dlq_reason
    """  # noqa: S608 - made of constants


def _queue(*, minutes_since: str, smaller: str) -> str:
    minutes = minutes_since.format("entry.dlq_timestamp")
    return f"""
        SELECT entry.dlq_entry_uuid, entry.id AS entry_id, entry.task_id AS task_uuid,
            template.namespace, template.name AS task_name, entry.execution_id, entry.dlq_reason,
            entry.original_state, entry.detail, entry.dlq_timestamp, {minutes} AS minutes_in_dlq,
            {BASES} + {smaller}({minutes}, {AGE_LIMIT}) AS priority_score
        FROM orchestrator_dlqentry AS entry
        LEFT JOIN orchestrator_task AS task ON task.id = entry.task_id
        LEFT JOIN orchestrator_tasktemplate AS template ON template.id = task.template_id
        WHERE entry.resolution_status = 'pending' ORDER BY priority_score DESC, entry.id
    """  # noqa: S608 - made of constants


_MINUTES_POSTGRESQL = "CAST(EXTRACT(EPOCH FROM now() - {}) / 60 AS double precision)"
_MINUTES_SQLITE = "((julianday('now') - julianday({})) * 1440)"

POSTGRESQL: Mapping[str, str] = {
    "v_task_staleness_limits": _limits(
        scopes="""
            CROSS JOIN LATERAL (
                SELECT '', COALESCE(template.definition -> 'lifecycle', '{}')
                UNION ALL
                SELECT key, COALESCE(template.definition -> 'lifecycle', '{}')
                    || COALESCE(value -> 'lifecycle', '{}')
                FROM jsonb_each(COALESCE(template.definition -> 'environments', '{}'))
            ) AS scope (environment, lifecycle)
        """,
        minutes="""CAST(
            scope.lifecycle ->> ('max_' || standard.limit_name || '_minutes') AS double precision
        )""",
        text="scope.lifecycle ->> '{}'",
        flag="COALESCE(CAST(scope.lifecycle ->> '{}' AS boolean), true)",
        named="COALESCE(template.definition -> 'environments', '{}')",
    ),
    "v_task_staleness_monitoring": _monitoring(
        minutes_since=_MINUTES_POSTGRESQL,
        larger="GREATEST",
        collected="jsonb_object_agg(environment || ':' || limit_name, minutes)",
        looked_up="CAST(allowed.minutes ->> ({}) AS double precision)",
    ),
    "v_dlq_dashboard": _dashboard(
        minutes="CAST(EXTRACT(EPOCH FROM resolved_at - dlq_timestamp) / 60 AS double precision)"
    ),
    "v_dlq_investigation_queue": _queue(minutes_since=_MINUTES_POSTGRESQL, smaller="LEAST"),
}

SQLITE: Mapping[str, str] = {
    "v_task_staleness_limits": _limits(
        scopes="""
            JOIN (
                SELECT id AS template_id, '' AS environment,
                    COALESCE(json_extract(definition, '$.lifecycle'), '{}') AS lifecycle
                FROM orchestrator_tasktemplate
                UNION ALL
                SELECT owner.id, named.key, json_patch(
                    COALESCE(json_extract(owner.definition, '$.lifecycle'), '{}'),
                    COALESCE(json_extract(named.value, '$.lifecycle'), '{}')
                )
                FROM orchestrator_tasktemplate AS owner, json_each(
                    COALESCE(json_extract(owner.definition, '$.environments'), '{}')
                ) AS named
            ) AS scope ON scope.template_id = template.id
        """,
        minutes="json_extract(scope.lifecycle, '$.max_' || standard.limit_name || '_minutes')",
        text="json_extract(scope.lifecycle, '$.{}')",
        flag="COALESCE(json_extract(scope.lifecycle, '$.{}'), 1)",
        named="COALESCE(json_extract(template.definition, '$.environments'), '{}')",
    ),
    "v_task_staleness_monitoring": _monitoring(
        minutes_since=_MINUTES_SQLITE,
        larger="MAX",
        collected="json_group_object(environment || ':' || limit_name, minutes)",
        looked_up="json_extract(allowed.minutes, '$.\"' || {} || '\"')",
    ),
    "v_dlq_dashboard": _dashboard(
        minutes="(julianday(resolved_at) - julianday(dlq_timestamp)) * 1440"
    ),
    "v_dlq_investigation_queue": _queue(minutes_since=_MINUTES_SQLITE, smaller="MIN"),
}
"""In the order in which they are made: the later ones read the earlier ones."""


def drop(*, using: str, plan: Sequence[tuple[Any, bool]], **_: Any) -> None:
    """Before migrations: out of their way, if there are any of ours."""
    if any(migration.app_label == APP for migration, _ in plan):
        with transaction.atomic(using=using):
            _drop(using)


def make(*, using: str, **_: Any) -> None:
    """After migrations: again, if all of ours have run; the tables of earlier ones lack things."""
    executor = MigrationExecutor(connections[using])
    if executor.migration_plan(executor.loader.graph.leaf_nodes(APP)):
        return
    with transaction.atomic(using=using):
        _drop(using)
        views = POSTGRESQL if connections[using].vendor == "postgresql" else SQLITE
        with connections[using].cursor() as cursor:
            for name, definition in views.items():
                cursor.execute(f"CREATE VIEW {name} AS {definition}")
        StalenessDefault.objects.using(using).follow_settings()


def _drop(using: str) -> None:
    with connections[using].cursor() as cursor:
        for name in reversed(list(POSTGRESQL)):
            cursor.execute(f"DROP VIEW IF EXISTS {name}")
