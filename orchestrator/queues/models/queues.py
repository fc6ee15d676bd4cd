"""Queues: named lanes of executions, and what happened to each."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import Q

from orchestrator.core import authority
from orchestrator.core.authority import WHOLE, Place, Principal
from orchestrator.core.models import Action, Pack
from orchestrator.core.queue_terms import NAME

REASON_MAX = 500


class WorkQueueQuerySet(models.QuerySet["WorkQueue"]):
    def visible_to(
        self, principal: Principal, permission: str = "queues.read"
    ) -> WorkQueueQuerySet:
        """All of them, or none: a queue takes work of any pack, so no scope covers one."""
        return self if authority.reach(principal, permission).is_everywhere else self.none()

    def in_use(self) -> WorkQueueQuerySet:
        """Not retired."""
        return self.filter(retired_at__isnull=True)

    def limited(self) -> WorkQueueQuerySet:
        """Has a limit of what runs at once."""
        return self.filter(max_running__isnull=False)


class WorkQueue(models.Model):
    """A named lane of executions: its limits, and the values of those that state none.

    `default` is the lane of all executions that name none. It has no row.
    """

    name = models.CharField(max_length=100, unique=True)
    description = models.TextField(blank=True)
    pack = models.ForeignKey(
        Pack, null=True, blank=True, on_delete=models.PROTECT, related_name="+",
        help_text="The pack that defines it; empty if somebody made it.",
    )  # fmt: skip
    pack_id: int | None
    revision = models.PositiveIntegerField(
        default=1, help_text="Grows with each change of its definition."
    )

    accepts = models.BooleanField(default=True, help_text="Refuses new executions if not.")
    paused_at = models.DateTimeField(
        null=True, blank=True, help_text="Since when it starts nothing; it accepts all the same."
    )
    pause_reason = models.CharField(max_length=REASON_MAX, blank=True)
    paused_by = models.CharField(max_length=150, blank=True)
    retired_at = models.DateTimeField(
        null=True, blank=True, help_text="Since when nobody can use it. Its name stays taken."
    )

    action = models.ForeignKey(
        Action, null=True, blank=True, on_delete=models.PROTECT, related_name="+",
        help_text="What it runs for requests that name no action.",
    )  # fmt: skip
    action_id: int | None
    default_priority = models.SmallIntegerField(default=0)
    deadline_seconds = models.FloatField(null=True, blank=True)
    timeout_seconds = models.FloatField(null=True, blank=True)
    retry_limit = models.PositiveSmallIntegerField(
        null=True, blank=True,
        help_text="Attempts after the first; empty for the retry policy of each action.",
    )  # fmt: skip
    prefetch_buffer = models.PositiveIntegerField(
        default=1, help_text="Executions sent to a worker beyond its slots."
    )
    max_running = models.PositiveIntegerField(
        null=True, blank=True, help_text="The most that workers hold at once, over all of them."
    )

    defer_seconds = models.FloatField(
        default=5.0, help_text="The first pause of an execution whose action rejects it for now."
    )
    defer_pause_seconds = models.FloatField(
        default=30.0, help_text="The pause of a worker's subscription after such a rejection."
    )
    health_check = models.CharField(
        max_length=200, blank=True, help_text="A callable that ends such a pause early."
    )

    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()

    objects: ClassVar[WorkQueueQuerySet] = WorkQueueQuerySet.as_manager()  # type: ignore[assignment]

    class Meta:
        ordering = ["name"]
        verbose_name = "queue"
        constraints = [
            models.CheckConstraint(
                name="queue_name_is_plain", condition=Q(name__regex=f"^{NAME.pattern}$")
            ),
            models.CheckConstraint(name="queue_name_is_not_default", condition=~Q(name="default")),
            models.CheckConstraint(
                name="queue_max_running_is_positive",
                condition=Q(max_running__isnull=True) | Q(max_running__gte=1),
            ),
            models.CheckConstraint(
                name="queue_retired_accepts_nothing",
                condition=Q(retired_at__isnull=True) | Q(accepts=False),
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def place(self) -> Place:
        """The whole installation, for scopes."""
        return WHOLE

    @property
    def is_paused(self) -> bool:
        return self.paused_at is not None

    @property
    def state(self) -> str:
        """`open`, `paused`, `closed` (accepts nothing), or `retired`."""
        if self.retired_at is not None:
            return "retired"
        if self.is_paused:
            return "paused"
        return "open" if self.accepts else "closed"


class QueueEvent(models.Model):
    """Something that happened to a queue: by whom, why, when. Written with it, never changed."""

    class Kind(models.TextChoices):
        CREATED = "created"
        CHANGED = "changed"
        PAUSED = "paused"
        RESUMED = "resumed"
        RETIRED = "retired"

    queue = models.ForeignKey(WorkQueue, on_delete=models.CASCADE, related_name="events")
    kind = models.CharField(max_length=10, choices=Kind.choices)
    revision = models.PositiveIntegerField()
    actor = models.CharField(max_length=150)
    reason = models.CharField(max_length=REASON_MAX, blank=True)
    at = models.DateTimeField()

    class Meta:
        ordering = ["pk"]

    def __str__(self) -> str:
        return f"{self.kind} by {self.actor}"
