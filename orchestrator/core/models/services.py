"""Services besides workers: which processes there are, and when each was last heard of."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

from django.db import models
from uuid_utils import compat as uuid_utils


class ServiceQuerySet(models.QuerySet["Service"]):
    def heard_since(self, at: datetime) -> ServiceQuerySet:
        return self.filter(seen_at__gte=at)


class Service(models.Model):
    """One life of an executor, a gate service, a beat, an API process or a notifier."""

    class Kind(models.TextChoices):
        EXECUTOR = "executor"
        GATE = "gate"
        BEAT = "beat"
        API = "api"
        NOTIFIER = "notifier"

    id = models.UUIDField(primary_key=True, default=uuid_utils.uuid7, editable=False)
    kind = models.CharField(max_length=10, choices=Kind.choices)
    name = models.CharField(max_length=100, help_text="The same after a restart.")
    host = models.CharField(max_length=255)
    pid = models.PositiveIntegerField()
    started_at = models.DateTimeField()
    seen_at = models.DateTimeField(help_text="Renewed every five seconds.")
    stopped_at = models.DateTimeField(null=True, help_text="Since when it has ended by itself.")
    trouble = models.TextField(
        blank=True,
        default="",
        db_default="",
        help_text="What it lives with and does not get on for; its log has more.",
    )

    objects: ClassVar[ServiceQuerySet] = ServiceQuerySet.as_manager()  # type: ignore[assignment]

    class Meta:
        ordering = ["kind", "name", "pk"]
        constraints = [
            models.CheckConstraint(
                name="service_kind_is_known",
                condition=models.Q(kind__in=["executor", "gate", "beat", "api", "notifier"]),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"
