"""Tickets: one row for each foreign message, with what is owed to its sender."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar
from uuid import UUID

from django.db import models
from django.db.models import F, Q

from orchestrator.core.models import Execution
from orchestrator.queues.models.gates import QUEUE_NAME_MAX, Gate


class TicketQuerySet(models.QuerySet["Ticket"]):
    def untold(self) -> TicketQuerySet:
        """An answer is owed, now or later."""
        return self.filter(told_at__isnull=True)

    def over(self) -> TicketQuerySet:
        """An answer is owed now: the message was refused, or its execution is over."""
        is_over = Q(refusal__isnull=False) | Q(execution__ended_at__isnull=False)
        return self.untold().filter(is_over)

    def due(self, now: datetime) -> TicketQuerySet:
        """Over, and not tried a moment ago."""
        return self.over().filter(Q(next_tell_at__isnull=True) | Q(next_tell_at__lte=now))


class Ticket(models.Model):
    """A task message that was taken in: what came, which execution does it, what was answered."""

    gate = models.ForeignKey(Gate, on_delete=models.PROTECT, db_index=False, related_name="tickets")
    gate_id: int
    task_id = models.CharField(max_length=200, blank=True, help_text="Empty if unreadable.")
    digest = models.CharField(
        max_length=64, help_text="SHA-256 of classifier, version, data and context."
    )
    tries = models.PositiveIntegerField(default=0, help_text="Lost starts, as the message came.")
    body = models.BinaryField(null=True, help_text="Dropped once it is answered, unless refused.")
    headers = models.JSONField(default=dict, blank=True)
    properties = models.JSONField(default=dict, blank=True)
    envelope = models.JSONField(
        default=dict, blank=True, help_text="The members of the message, without its data."
    )

    execution = models.OneToOneField(
        Execution, null=True, on_delete=models.PROTECT, related_name="ticket"
    )
    execution_id: UUID | None
    refusal = models.JSONField(null=True, help_text="Why there is no execution, if there is none.")
    continues = models.ForeignKey(
        "self", null=True, on_delete=models.PROTECT, related_name="+",
        help_text="The ticket of the same task before it was moved to another queue.",
    )  # fmt: skip
    moved_at = models.DateTimeField(
        null=True, help_text="Since when the message is on another queue again."
    )

    holder = models.CharField(
        max_length=150, blank=True, help_text="The executor that holds the delivery."
    )
    held_at = models.DateTimeField(null=True)
    job_status = models.CharField(
        max_length=8, blank=True, default="", help_text="`paused` or `inactive`, if it was asked."
    )
    status_checked_at = models.DateTimeField(null=True)

    told_at = models.DateTimeField(null=True, help_text="When its answer was confirmed.")
    told_to = models.CharField(max_length=QUEUE_NAME_MAX, blank=True)
    tell_tries = models.PositiveIntegerField(default=0)
    next_tell_at = models.DateTimeField(null=True)
    last_error = models.CharField(max_length=500, blank=True)
    created_at = models.DateTimeField()

    objects: ClassVar[TicketQuerySet] = TicketQuerySet.as_manager()  # type: ignore[assignment]

    class Meta:
        ordering = ["-pk"]
        # no other index contains what changes: PostgreSQL then updates rows in place (HOT)
        indexes = [
            models.Index("gate", "id", name="ticket_untold", condition=Q(told_at__isnull=True)),
            models.Index(
                "gate", "task_id", name="ticket_moved", condition=Q(moved_at__isnull=False)
            ),
        ]
        constraints = [
            models.UniqueConstraint(
                "gate",
                "task_id",
                "digest",
                name="ticket_of_task_is_unique",
                condition=Q(moved_at__isnull=True),
            ),
            models.CheckConstraint(
                name="ticket_has_execution_or_refusal",
                condition=Q(execution__isnull=False, refusal__isnull=True)
                | Q(execution__isnull=True, refusal__isnull=False),
            ),
            models.CheckConstraint(
                name="ticket_continues_an_earlier_one",
                condition=Q(continues__isnull=True) | Q(continues__lt=F("id")),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.task_id or 'unreadable'} at {self.gate_id}"
