"""The dead letters that were drained: what died, where, why, and what it was about."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import models

from orchestrator.models.executions import Execution

if TYPE_CHECKING:
    from uuid import UUID


class DLQEntry(models.Model):
    """One dead letter that told something: an execution that never started, or garbage."""

    class Reason(models.TextChoices):
        QUEUE_TTL_EXPIRED = "queue_ttl_expired"
        MESSAGE_REJECTED = "message_rejected"
        MESSAGE_INVALID = "message_invalid"

    execution = models.ForeignKey(
        Execution, null=True, blank=True, on_delete=models.SET_NULL, related_name="dlq_entries"
    )
    execution_id: UUID | None
    attempt = models.PositiveIntegerField(null=True, blank=True)
    reason = models.CharField(max_length=40, choices=Reason.choices)
    detail = models.TextField(blank=True, help_text="What exactly was wrong.")
    original_exchange = models.CharField(max_length=255, blank=True)
    original_queue = models.CharField(max_length=255, blank=True)
    original_routing_key = models.CharField(max_length=255, blank=True)
    x_death = models.JSONField(default=list, blank=True)
    headers = models.JSONField(default=dict, blank=True)
    raw_body = models.BinaryField(
        null=True, blank=True, help_text="Kept when it could not be read."
    )
    snapshot = models.JSONField(
        default=dict, blank=True, help_text="The execution as it was when the letter was drained."
    )
    fingerprint = models.CharField(
        max_length=80, unique=True, help_text="Makes draining the same letter twice harmless."
    )
    created_at = models.DateTimeField()

    class Meta:
        verbose_name = "DLQ entry"
        verbose_name_plural = "DLQ entries"
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"{self.reason} from {self.original_queue or 'an unknown queue'}"
