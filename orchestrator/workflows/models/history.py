"""The history of tasks and their steps."""

from __future__ import annotations

from uuid import UUID

from django.db import models
from django.db.models import Q

from orchestrator.workflows.models.steps import Step
from orchestrator.workflows.models.tasks import Task


class TransitionRecordQuerySet(models.QuerySet["TransitionRecord"]):
    def of_task(self, task_id: UUID) -> TransitionRecordQuerySet:
        """The history of a task and its steps, oldest first."""
        return self.filter(task_id=task_id).order_by("pk")


class TransitionRecord(models.Model):
    """One transition of a task, or of the step that it names. Written in the same transaction,
    never changed."""

    task = models.ForeignKey(Task, on_delete=models.CASCADE, related_name="history", db_index=False)
    task_id: UUID
    step = models.ForeignKey(
        Step, null=True, on_delete=models.CASCADE, related_name="history", db_index=False
    )
    step_id: UUID | None
    event = models.CharField(max_length=24)
    from_state = models.CharField(max_length=26)
    to_state = models.CharField(max_length=26)
    fence = models.PositiveIntegerField()
    actor = models.CharField(max_length=150)
    reason = models.CharField(max_length=500, blank=True)
    processor = models.CharField(max_length=100, help_text="Host and process that wrote it.")
    at = models.DateTimeField()

    objects = TransitionRecordQuerySet.as_manager()

    class Meta:
        ordering = ["pk"]
        indexes = [
            models.Index("task", "id", name="transition_by_task"),
            models.Index("step", "id", name="transition_by_step", condition=Q(step__isnull=False)),
        ]

    def __str__(self) -> str:
        return f"{self.from_state} -> {self.to_state} ({self.event})"
