"""Events of the audit, and the chain that seals them. Both are only ever added to."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

from django.db import models

from orchestrator.core import words

DECISION_KINDS = words.kinds(success="allowed", danger="denied")


class AuditEventQuerySet(models.QuerySet["AuditEvent"]):
    def newest_first(self) -> AuditEventQuerySet:
        return self.order_by("-pk")

    def since(self, at: datetime) -> AuditEventQuerySet:
        """Those that happened at this time, or later."""
        return self.filter(at__gte=at)


class AuditEvent(models.Model):
    """Something that a person or a service did, or was refused. No event is changed or removed."""

    class Decision(models.TextChoices):
        ALLOWED = "allowed"
        DENIED = "denied"

    at = models.DateTimeField()
    actor_kind = models.CharField(max_length=20, help_text="Such as user, token, command.")
    actor_id = models.CharField(max_length=40, blank=True)
    actor = models.CharField(max_length=150, help_text="The name, as in histories.")
    token_prefix = models.CharField(max_length=12, blank=True)
    permission = models.CharField(max_length=60, help_text="What it takes: `executions.cancel`.")
    object_kind = models.CharField(max_length=40, blank=True)
    object_id = models.CharField(max_length=200, blank=True)
    decision = models.CharField(max_length=7, choices=Decision.choices)
    reason = models.CharField(max_length=200, blank=True)
    request_id = models.CharField(max_length=64, blank=True)
    address = models.CharField(max_length=45, blank=True)

    objects: ClassVar[AuditEventQuerySet] = AuditEventQuerySet.as_manager()  # type: ignore[assignment]

    class Meta:
        app_label = "access"
        ordering = ["-pk"]
        indexes = [
            models.Index("actor", "id", name="audit_by_actor"),
            models.Index("object_id", "id", name="audit_by_object"),
        ]

    def __str__(self) -> str:
        return f"{self.permission} by {self.actor}: {self.decision}"

    @property
    def about(self) -> str:
        """Its object in words."""
        return f"{self.object_kind} {self.object_id}".strip()


class AuditSeal(models.Model):
    """The place of one event in the chain: its hash covers the event and the hash before it."""

    position = models.BigIntegerField(primary_key=True, db_column="id")
    event_id = models.BigIntegerField(unique=True)
    previous = models.CharField(max_length=64)
    hash = models.CharField(max_length=64)

    class Meta:
        app_label = "access"
        ordering = ["position"]

    def __str__(self) -> str:
        return f"{self.position}: {self.hash[:12]}"
