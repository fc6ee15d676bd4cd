"""Limits of the time that tasks may spend in a state, and the tasks that are over them.

A limit is the template's own, in the task's environment, or else the setting's. Two database views
compute them: `v_task_staleness_limits` for detection, `v_task_staleness_monitoring` for people.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple
from uuid import UUID

from django.conf import settings
from django.db import connections, models

from orchestrator.core import authority, words
from orchestrator.core.authority import Principal
from orchestrator.core.frame import NAMESPACES
from orchestrator.workflows.models import limit_clocks
from orchestrator.workflows.models.views import HAS_PENDING_ENTRY, WARNING_FROM

KINDS = words.kinds(success="healthy", warning="warning", danger="stale")

DURATION = "duration"
"""The limit of a task's whole life; the other limits are named after their state."""

LEAST_MINUTES, MOST_MINUTES = 0.001, 5_256_000
"""The least and the most that a limit may be: the most is ten years. PostgreSQL refuses a whole
statement over one limit that no timestamp can hold, or of which a task has used more than a double
can hold."""


class StalenessDefaultQuerySet(models.QuerySet["StalenessDefault"]):
    def follow_settings(self) -> None:
        """Copy the present settings to the table that the views read."""
        wanted = settings.MUSTER.task_limits_minutes
        if dict(self.values_list("limit_name", "minutes")) != wanted:
            self.bulk_create(
                [self.model(limit_name=name, minutes=m) for name, m in wanted.items()],
                update_conflicts=True,
                unique_fields=["limit_name"],
                update_fields=["minutes"],
            )


class StalenessDefault(models.Model):
    """A limit of the settings, where SQL can read it."""

    limit_name = models.CharField(max_length=24, primary_key=True)
    minutes = models.FloatField()

    objects = StalenessDefaultQuerySet.as_manager()

    def __str__(self) -> str:
        return f"{self.limit_name}: {self.minutes:g} min"


class Overstepped(NamedTuple):
    """A task over one of its limits, and the actions that its template asks for."""

    task_id: UUID
    limit_name: str
    limit_minutes: float
    opens_entry: bool
    moves_to_error: bool
    counts_from: datetime
    """Without the time that does not count for this limit, see `limit_clocks`."""


class TaskLimitQuerySet(models.QuerySet["TaskLimit"]):
    def overstepped(self, *, now: datetime, limit: int, lock: bool) -> list[Overstepped]:
        """The first `limit` tasks over a limit that asks for an action, without those that have a
        pending entry. A task over two limits comes twice.

        One statement. With `lock`, inside a transaction: rows that others hold are left out, the
        rest is locked. SQLite has one writer at a time, so there is nothing to lock.
        """
        connection = connections[self.db]
        if connection.vendor == "postgresql":
            sql = _OVERSTEPPED_POSTGRESQL + (_HELD if lock else "")
        else:
            sql = _OVERSTEPPED_SQLITE
        at = connection.ops.adapt_datetimefield_value(now)
        with connection.cursor() as cursor:
            cursor.execute(sql, {"now": at, "limit": limit})
            rows = cursor.fetchall()
        return [
            Overstepped(_uuid(id), name, minutes, bool(opens), bool(moves), _time(counts_from))
            for id, name, minutes, opens, moves, counts_from in rows
        ]

    def count_near(self, *, now: datetime, most: int) -> dict[str, float]:
        """Count the tasks whose health is `warning` and `stale`, without those that have a pending
        entry; on PostgreSQL at most `most` of each limit of each template, of the ten times as many
        that are the oldest, from indexes."""
        connection = connections[self.db]
        warning, stale = TaskStaleness.Health.WARNING, TaskStaleness.Health.STALE
        if connection.vendor != "postgresql":
            alone = TaskStaleness.objects.filter(has_pending_entry=False)
            counted = alone.order_by().values_list("health_status")
            numbers = dict(counted.annotate(n=models.Count("pk")))
            return {health.value: float(numbers.get(health, 0)) for health in (warning, stale)}
        with connection.cursor() as cursor:
            cursor.execute(_COUNTED_POSTGRESQL, {"now": now, "limit": most})
            near, over = cursor.fetchone()
        return {warning.value: float(near), stale.value: float(over)}

    def near(self, *, now: datetime, limit: int) -> list[UUID]:
        """The ids of so many tasks of those that `count_near` counts."""
        connection = connections[self.db]
        if connection.vendor != "postgresql":
            healthy = TaskStaleness.Health.HEALTHY
            alone = TaskStaleness.objects.filter(has_pending_entry=False)
            return list(alone.exclude(health_status=healthy).values_list("pk", flat=True)[:limit])
        with connection.cursor() as cursor:
            cursor.execute(f"{_NEAR_POSTGRESQL} LIMIT %(limit)s", {"now": now, "limit": limit})
            return [id for id, _ in cursor.fetchall()]


class TaskLimit(models.Model):
    """One limit of one template in one environment; the empty environment stands for all that the
    template does not name. A view."""

    key = models.CharField(max_length=200, primary_key=True)
    template_id = models.BigIntegerField()
    environment = models.CharField(max_length=60)
    limit_name = models.CharField(max_length=24)
    minutes = models.FloatField()
    opens_entry = models.BooleanField()
    moves_to_error = models.BooleanField()

    objects = TaskLimitQuerySet.as_manager()

    class Meta:
        managed = False
        db_table = "v_task_staleness_limits"

    def __str__(self) -> str:
        return f"{self.key}: {self.minutes:g} min"


class TaskStalenessQuerySet(models.QuerySet["TaskStaleness"]):
    def visible_to(
        self, principal: Principal, permission: str = "dlq.read"
    ) -> TaskStalenessQuerySet:
        """Is of a namespace for which the caller has a permission."""
        reach = authority.reach(principal, permission)
        return (
            self
            if reach.is_everywhere
            else self.filter(reach.condition(NAMESPACES, "namespace_name"))
        )


class TaskStaleness(models.Model):
    """One open task, its time in its state, and the limit of that time. A view."""

    class Health(models.TextChoices):
        HEALTHY = "healthy"
        WARNING = "warning"
        STALE = "stale"

    task_uuid = models.UUIDField(primary_key=True)
    namespace_name = models.CharField(max_length=29)
    task_name = models.CharField(max_length=60)
    template_version = models.CharField(max_length=40)
    environment = models.CharField(max_length=60)
    current_state = models.CharField(max_length=24)
    priority = models.SmallIntegerField()
    correlation_id = models.CharField(max_length=100, null=True)  # noqa: DJ001 - as it is in tasks
    time_in_state_minutes = models.FloatField()
    staleness_threshold_minutes = models.FloatField()
    task_age_minutes = models.FloatField()
    max_duration_minutes = models.FloatField()
    used = models.FloatField(
        help_text="The larger part of a limit that is used up; 1 is all. From the warning on, "
        "without time that does not count."
    )
    health_status = models.CharField(max_length=10, choices=Health.choices)
    has_pending_entry = models.BooleanField()

    objects = TaskStalenessQuerySet.as_manager()

    class Meta:
        managed = False
        db_table = "v_task_staleness_monitoring"
        ordering = ["has_pending_entry", "-used"]

    def __str__(self) -> str:
        return f"{self.task_uuid} {self.health_status}"

    @property
    def threshold_percentage(self) -> float:
        return 100 * self.used


def _uuid(value: UUID | str) -> UUID:
    return value if isinstance(value, UUID) else UUID(value)


def _time(value: datetime | str) -> datetime:
    return (
        value if isinstance(value, datetime) else datetime.fromisoformat(value).replace(tzinfo=UTC)
    )


# --- SQL for both databases ----------------------------------------------------------------------

_IS_OF_ENVIRONMENT = """
    CASE WHEN allowed.environment = '' THEN NOT allowed.named ? task.environment
        ELSE task.environment = allowed.environment END
"""


_MINUTES = f"LEAST(allowed.minutes, {MOST_MINUTES})"
"""Templates that are installed already may have more."""


_CLOCKS = {
    # kind of limit: the indexed column that is never after the time from which it counts, that time
    "task.state = allowed.limit_name": ("clock_started_at", limit_clocks.of_state("postgresql")),
    "allowed.limit_name = 'duration'": ("created_at", limit_clocks.of_duration("postgresql")),
}


def _over_postgresql(kind: str, *, share: float = 1.0, looked_at: str = "") -> str:
    """SQL of the tasks that have used this share of each limit of a kind.

    It loops over the limits, which are few, and for each reads only the oldest tasks, from an index
    in that order: the cost grows with the number of templates and of stale tasks, not with all
    tasks. LATERAL with LIMIT leaves the planner no other plan. `looked_at`: of how many of them it
    looks up what does not count, if not of all.
    """
    clock, counts_from = _CLOCKS[kind]
    latest = f"%(now)s - {share} * {_MINUTES} * interval '1 minute'"
    oldest = f"""
        FROM workflows_task AS task
        WHERE task.ended_at IS NULL AND task.template_id = allowed.template_id AND {kind}
            AND task.{clock} <= {latest}
            AND {_IS_OF_ENVIRONMENT}
            AND NOT {HAS_PENDING_ENTRY}
    """
    if looked_at:
        columns = "task.id, task.created_at, task.clock_started_at"
        oldest = f"""
            FROM (
                SELECT {columns} {oldest} ORDER BY task.{clock} LIMIT {looked_at}
            ) AS task WHERE true
        """
    return f"""
        SELECT over.id, allowed.limit_name, {_MINUTES} AS minutes, allowed.opens_entry,
            allowed.moves_to_error, over.counts_from
        FROM v_task_staleness_limits AS allowed
        CROSS JOIN LATERAL (
            SELECT task.id, {counts_from} AS counts_from {oldest} AND {counts_from} <= {latest}
            ORDER BY task.{clock} LIMIT %(limit)s
        ) AS over
    """  # noqa: S608 - made of constants


_OVERSTEPPED_POSTGRESQL = f"""
    WITH due AS MATERIALIZED (
        {
    " UNION ALL ".join(
        f"{_over_postgresql(kind)} WHERE allowed.opens_entry OR allowed.moves_to_error"
        for kind in _CLOCKS
    )
}
        LIMIT %(limit)s
    )
    SELECT due.* FROM due JOIN workflows_task AS task USING (id)
"""  # noqa: S608 - made of constants

_NEAR_POSTGRESQL = f"""
    SELECT id, bool_or(counts_from <= %(now)s - minutes * interval '1 minute') AS is_stale
    FROM ({
    " UNION ALL ".join(
        _over_postgresql(kind, share=WARNING_FROM, looked_at="10 * %(limit)s") for kind in _CLOCKS
    )
}) AS near GROUP BY id
"""  # noqa: S608 - made of constants

_COUNTED_POSTGRESQL = f"""
    SELECT count(*) FILTER (WHERE NOT is_stale), count(*) FILTER (WHERE is_stale)
    FROM ({_NEAR_POSTGRESQL}) AS task
"""  # noqa: S608 - made of constants

_HELD = " WHERE task.ended_at IS NULL FOR NO KEY UPDATE OF task SKIP LOCKED"

_STATE, _DURATION = (
    sql("sqlite").replace("%", "%%") for sql in (limit_clocks.of_state, limit_clocks.of_duration)
)
_OVERSTEPPED_SQLITE = f"""
    SELECT id, limit_name, minutes, opens_entry, moves_to_error, counts_from FROM (
        SELECT task.id, allowed.limit_name, MIN(allowed.minutes, {MOST_MINUTES}) AS minutes,
            allowed.opens_entry, allowed.moves_to_error,
            CASE allowed.limit_name WHEN 'duration' THEN {_DURATION} ELSE {_STATE} END
                AS counts_from
        FROM v_task_staleness_limits AS allowed CROSS JOIN workflows_task AS task
        WHERE task.ended_at IS NULL AND task.template_id = allowed.template_id
            AND allowed.limit_name IN ('duration', task.state)
            AND CASE WHEN allowed.environment = ''
                THEN NOT EXISTS (
                    SELECT 1 FROM json_each(allowed.named) AS named
                    WHERE named.key = task.environment
                )
                ELSE task.environment = allowed.environment END
            AND (allowed.opens_entry OR allowed.moves_to_error)
            AND NOT {HAS_PENDING_ENTRY}
    )
    WHERE counts_from <= strftime('%%Y-%%m-%%d %%H:%%M:%%f', %(now)s, (-60 * minutes) || ' seconds')
    ORDER BY counts_from LIMIT %(limit)s
"""  # noqa: S608 - made of constants
