"""The workers, and one row for each life of a worker process."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.conf import settings
from django.db import models
from django.db.models import Q


class WorkerQuerySet(models.QuerySet["Worker"]):
    def fresh(self, now: datetime) -> WorkerQuerySet:
        """Heartbeat not older than the staleness window."""
        window = timedelta(seconds=settings.MUSTER.staleness_seconds)
        return self.filter(heartbeat_at__gte=now - window)

    def eligible(self, now: datetime) -> WorkerQuerySet:
        """May be given work: active and fresh."""
        return self.fresh(now).filter(status=Worker.Status.ACTIVE)

    def stale(self, now: datetime) -> WorkerQuerySet:
        """Believed to be up, but silent for longer than the staleness window."""
        window = timedelta(seconds=settings.MUSTER.staleness_seconds)
        return self.filter(
            status__in=[Worker.Status.ACTIVE, Worker.Status.DRAINING],
            heartbeat_at__lt=now - window,
        )


class Worker(models.Model):
    """A named place where executions run. Its `incarnation` grows with each life of its process."""

    class Status(models.TextChoices):
        ACTIVE = "active"
        INACTIVE = "inactive"
        DRAINING = "draining"

    name = models.CharField(max_length=100, unique=True)
    incarnation = models.PositiveIntegerField(default=0)
    status = models.CharField(max_length=10, choices=Status.choices, default=Status.INACTIVE)
    status_reason = models.CharField(max_length=200, blank=True)
    capacity = models.PositiveIntegerField(default=1, help_text="Actions it runs at once.")
    runtimes = models.JSONField(default=list, help_text="Kinds of action it offers.")
    labels = models.JSONField(default=dict, blank=True)
    registered_at = models.DateTimeField(null=True, blank=True)
    heartbeat_at = models.DateTimeField(null=True, blank=True)
    host = models.CharField(max_length=255, blank=True)
    pid = models.PositiveIntegerField(null=True, blank=True)
    version = models.CharField(max_length=40, blank=True)

    objects = WorkerQuerySet.as_manager()

    class Meta:
        ordering = ["name"]
        constraints = [
            models.CheckConstraint(
                name="worker_status_is_known",
                condition=Q(status__in=["active", "inactive", "draining"]),
            ),
            models.CheckConstraint(
                name="worker_that_is_up_has_heartbeat",
                condition=Q(status="inactive") | Q(heartbeat_at__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return self.name
