"""Database views that summarize investigations."""

from __future__ import annotations

from collections.abc import Mapping

from django.db import models

from orchestrator.core.authority import Place, Principal
from orchestrator.core.models.dead_letters import about, is_about_visible, place_of_subject
from orchestrator.core.models.view_definitions import MINUTES_SINCE


class DLQDashboard(models.Model):
    """The numbers of investigations with one reason. A view."""

    dlq_reason = models.CharField(max_length=40, primary_key=True)
    total_entries = models.BigIntegerField()
    pending = models.BigIntegerField()
    manually_resolved = models.BigIntegerField()
    permanent_failures = models.BigIntegerField()
    cancelled = models.BigIntegerField()
    oldest_entry = models.DateTimeField()
    newest_entry = models.DateTimeField()
    avg_resolution_time_minutes = models.FloatField(null=True, help_text="Of those closed.")

    class Meta:
        managed = False
        db_table = "v_dlq_dashboard"
        ordering = ["dlq_reason"]

    def __str__(self) -> str:
        return f"{self.dlq_reason}: {self.pending} of {self.total_entries} pending"


class InvestigationQueueQuerySet(models.QuerySet["InvestigationQueue"]):
    def visible_to(
        self, principal: Principal, permission: str = "dlq.read"
    ) -> InvestigationQueueQuerySet:
        """Is about something for which the caller has a permission."""
        return self.filter(is_about_visible(principal, permission))


class InvestigationQueue(models.Model):
    """Pending investigations, most urgent first: a base score by reason, plus the priority of the
    execution, plus a point a minute. A view."""

    dlq_entry_uuid = models.UUIDField(primary_key=True)
    entry_id = models.BigIntegerField()
    subject_kind = models.CharField(max_length=40)
    subject_id = models.UUIDField(null=True)
    subject_name = models.CharField(max_length=250)
    task_uuid = models.UUIDField(null=True)
    dlq_reason = models.CharField(max_length=40)
    original_state = models.CharField(max_length=40)
    original_queue = models.CharField(max_length=255)
    occurrences = models.PositiveIntegerField()
    detail = models.TextField()
    dlq_timestamp = models.DateTimeField()
    minutes_in_dlq = models.FloatField()
    priority_score = models.FloatField()

    objects = InvestigationQueueQuerySet.as_manager()

    class Meta:
        managed = False
        db_table = "v_dlq_investigation_queue"
        verbose_name = "investigation"
        ordering = ["-priority_score"]

    def __str__(self) -> str:
        return f"{self.priority_score:.0f} {self.dlq_reason}"

    @property
    def place(self) -> Place:
        """The place that its subject belongs to, for scopes."""
        return place_of_subject(self.subject_kind, self.subject_name)

    @property
    def about(self) -> str:
        """Its subject in words; for a letter without a subject, its origin."""
        return about(self)


BASES = """
    CASE entry.dlq_reason
        WHEN 'dependency_cycle_detected' THEN 1000
        WHEN 'max_retries_exceeded' THEN 500
        WHEN 'poison' THEN 500
        WHEN 'staleness_timeout' THEN 100
        WHEN 'sensor_failing' THEN 100
        WHEN 'rule_failing' THEN 100
        WHEN 'worker_unavailable' THEN 50
        WHEN 'manual_dlq' THEN 10
        ELSE CASE entry.subject_kind WHEN 'execution' THEN 50 ELSE 0 END
    END
"""
"""The base score of each reason in the queue of investigations; each minute adds one. The reasons
without a base are those of messages: nobody waits for one that is about nothing."""

AGE_LIMIT = 10_000


def view_definitions(vendor: str) -> Mapping[str, str]:
    """Both views in the SQL of a database."""
    if vendor == "postgresql":
        took = "CAST(EXTRACT(EPOCH FROM resolved_at - dlq_timestamp) / 60 AS double precision)"
        smaller = "LEAST"
    else:
        took = "(julianday(resolved_at) - julianday(dlq_timestamp)) * 1440"
        smaller = "MIN"
    return {
        "v_dlq_dashboard": _dashboard(minutes=took),
        "v_dlq_investigation_queue": _queue(minutes_since=MINUTES_SINCE[vendor], smaller=smaller),
    }


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
        SELECT entry.dlq_entry_uuid, entry.id AS entry_id, entry.subject_kind, entry.subject_id,
            entry.subject_name,
            CASE WHEN entry.subject_kind = 'task' THEN entry.subject_id END AS task_uuid,
            entry.dlq_reason, entry.original_state, entry.original_queue, entry.occurrences,
            entry.detail,
            entry.dlq_timestamp, {minutes} AS minutes_in_dlq,
            {BASES} + COALESCE(execution.priority, 0) + {smaller}({minutes}, {AGE_LIMIT})
                AS priority_score
        FROM orchestrator_dlqentry AS entry
        LEFT JOIN orchestrator_execution AS execution
            ON entry.subject_kind = 'execution' AND execution.id = entry.subject_id
        WHERE entry.resolution_status = 'pending' ORDER BY priority_score DESC, entry.id
    """  # noqa: S608 - made of constants
