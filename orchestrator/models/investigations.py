"""What the database says of investigations as a whole: its views."""

from __future__ import annotations

from uuid import UUID

from django.db import models


class DLQDashboard(models.Model):
    """How the investigations of one reason stand. A view."""

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


class InvestigationQueue(models.Model):
    """What is to be looked into next: the base of its reason, and a point a minute. A view."""

    dlq_entry_uuid = models.UUIDField(primary_key=True)
    entry_id = models.BigIntegerField()
    task_uuid = models.UUIDField(null=True)
    namespace = models.CharField(max_length=29, null=True)  # noqa: DJ001 - of no task
    task_name = models.CharField(max_length=60, null=True)  # noqa: DJ001 - of no task
    execution_id: UUID | None
    execution = models.ForeignKey(
        "Execution", null=True, on_delete=models.DO_NOTHING, related_name="+", db_constraint=False
    )
    dlq_reason = models.CharField(max_length=40)
    original_state = models.CharField(max_length=40)
    detail = models.TextField()
    dlq_timestamp = models.DateTimeField()
    minutes_in_dlq = models.FloatField()
    priority_score = models.FloatField()

    class Meta:
        managed = False
        db_table = "v_dlq_investigation_queue"
        verbose_name = "investigation"
        ordering = ["-priority_score"]

    def __str__(self) -> str:
        return f"{self.priority_score:.0f} {self.dlq_reason}"
