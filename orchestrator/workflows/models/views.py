"""Database views of tasks, in SQL for both databases."""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.core.models import DLQEntry
from orchestrator.core.models.view_definitions import MINUTES_SINCE
from orchestrator.workflows.models import limit_clocks
from orchestrator.workflows.states import TaskState

WARNING_FROM = 0.8

HAS_PENDING_ENTRY = f"""
    EXISTS (
        SELECT 1 FROM orchestrator_dlqentry AS entry
        WHERE entry.subject_id = task.id AND entry.resolution_status = 'pending' AND (
            entry.dlq_reason <> '{DLQEntry.Reason.WORKER_UNAVAILABLE}'
            OR task.state = '{TaskState.BLOCKED_BY_FAILURES}'
        )
    )
"""  # noqa: S608 - made of constants
"""An entry for want of a worker does not speak for a task that has gone on by itself."""


def definitions(vendor: str) -> Mapping[str, str]:
    """SQL by name, each view after those that it reads."""
    return POSTGRESQL if vendor == "postgresql" else SQLITE


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
        FROM workflows_tasktemplate AS template {scopes}
        CROSS JOIN workflows_stalenessdefault AS standard
    """  # noqa: S608 - made of constants


def _analysis(*, minutes_since: str, larger: str, collected: str, looked_up: str) -> str:
    """The base view: it alone joins tasks, templates and limits.

    `minutes_since` takes a column with `{}`, `looked_up` a key; `larger` is the function of two
    values, `collected` makes one object of all limits of a template, for a single join. The
    threshold of a state without a limit of its own is that of the whole task.
    """

    def allowed(limit: str) -> str:
        own, base = f"task.environment || ':' || {limit}", f"':' || {limit}"
        return f"COALESCE({looked_up.format(own)}, {looked_up.format(base)})"

    return f"""
        WITH allowed AS (
            SELECT template_id, {collected} AS minutes FROM v_task_staleness_limits
            GROUP BY template_id
        )
        SELECT task.id AS task_uuid, template.namespace AS namespace_name,
            template.name AS task_name, template.version AS template_version, task.environment,
            task.state AS current_state, task.priority, task.correlation_id,
            task.created_at AS task_created_at, task.state_entered_at, task.clock_started_at,
            {larger}(0, {minutes_since.format("task.clock_started_at")})
                AS time_in_state_minutes,
            COALESCE({allowed("task.state")}, {allowed("'duration'")})
                AS staleness_threshold_minutes,
            {minutes_since.format("task.created_at")} AS task_age_minutes,
            {allowed("'duration'")} AS max_duration_minutes,
            {HAS_PENDING_ENTRY} AS has_pending_entry
        FROM workflows_task AS task
        JOIN workflows_tasktemplate AS template ON template.id = task.template_id
        JOIN allowed ON allowed.template_id = task.template_id
        WHERE task.ended_at IS NULL
    """  # noqa: S608 - made of constants


def _monitoring(vendor: str, *, larger: str) -> str:
    """The base view's tasks, with the share of a limit that each has used."""

    def used(minutes: str, limit: str, counts_from: str) -> str:
        # what does not count is looked up only for tasks that seem to be near a limit: all others
        # are healthy with it or without
        counted = f"COALESCE({MINUTES_SINCE[vendor].format(counts_from)} / {limit}, 0)"
        share = f"{minutes} / {limit}"
        return f"CASE WHEN {share} < {WARNING_FROM} THEN {share} ELSE {counted} END"

    of_state, of_duration = limit_clocks.of_state(vendor), limit_clocks.of_duration(vendor)
    return f"""
        WITH task AS (
            SELECT analysis.*, task_uuid AS id, task_created_at AS created_at
            FROM v_task_state_analysis AS analysis
        ), rated AS (
            SELECT task_uuid, namespace_name, task_name, template_version, environment,
                current_state, priority, correlation_id, time_in_state_minutes,
                staleness_threshold_minutes, task_age_minutes, max_duration_minutes,
                has_pending_entry, {larger}(
                    {used("time_in_state_minutes", "staleness_threshold_minutes", of_state)},
                    {used("task_age_minutes", "max_duration_minutes", of_duration)}
                ) AS used
            FROM task
        )
        SELECT rated.*, CASE WHEN used >= 1 THEN 'stale' WHEN used >= {WARNING_FROM} THEN 'warning'
            ELSE 'healthy' END AS health_status
        FROM rated ORDER BY has_pending_entry, used DESC
    """  # noqa: S608 - made of constants


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
    "v_task_state_analysis": _analysis(
        minutes_since=MINUTES_SINCE["postgresql"],
        larger="GREATEST",
        collected="jsonb_object_agg(environment || ':' || limit_name, minutes)",
        looked_up="CAST(allowed.minutes ->> ({}) AS double precision)",
    ),
    "v_task_staleness_monitoring": _monitoring("postgresql", larger="GREATEST"),
}
SQLITE: Mapping[str, str] = {
    "v_task_staleness_limits": _limits(
        scopes="""
            JOIN (
                SELECT id AS template_id, '' AS environment,
                    COALESCE(json_extract(definition, '$.lifecycle'), '{}') AS lifecycle
                FROM workflows_tasktemplate
                UNION ALL
                SELECT owner.id, named.key, json_patch(
                    COALESCE(json_extract(owner.definition, '$.lifecycle'), '{}'),
                    COALESCE(json_extract(named.value, '$.lifecycle'), '{}')
                )
                FROM workflows_tasktemplate AS owner, json_each(
                    COALESCE(json_extract(owner.definition, '$.environments'), '{}')
                ) AS named
            ) AS scope ON scope.template_id = template.id
        """,
        minutes="json_extract(scope.lifecycle, '$.max_' || standard.limit_name || '_minutes')",
        text="json_extract(scope.lifecycle, '$.{}')",
        flag="COALESCE(json_extract(scope.lifecycle, '$.{}'), 1)",
        named="COALESCE(json_extract(template.definition, '$.environments'), '{}')",
    ),
    "v_task_state_analysis": _analysis(
        minutes_since=MINUTES_SINCE["sqlite"],
        larger="MAX",
        collected="json_group_object(environment || ':' || limit_name, minutes)",
        looked_up="json_extract(allowed.minutes, '$.\"' || {} || '\"')",
    ),
    "v_task_staleness_monitoring": _monitoring("sqlite", larger="MAX"),
}
