"""Steps of tasks, what they wait for, and the executions that were attempts at them."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar
from uuid import UUID

from django.db import models
from django.db.models import Exists, F, OuterRef, Q
from django.db.models.fields.json import KeyTransform
from uuid_utils import compat as uuid_utils

from orchestrator.core import authority
from orchestrator.core.authority import Place, Principal
from orchestrator.core.models.executions import Execution
from orchestrator.core.state_machine import MachineQuerySet
from orchestrator.workflows.models.tasks import MOST_TRIES, Task
from orchestrator.workflows.models.templates import TaskTemplate
from orchestrator.workflows.states import STEPS, StepState
from orchestrator.workflows.states.steps import FAILED, IN_FLIGHT, SATISFIED

OF_TASK = "task:"
"""The beginning of `requested_by` of each execution that a task has requested for a step."""


class StepKind(models.TextChoices):
    """Effect of the end of a step on its task, besides letting its children begin."""

    STANDARD = "standard"
    DECISION = "decision"
    """Names the steps to create."""
    DEFERRED = "deferred"
    """Waits only for those of its parents that were created."""
    INQUIRY = "inquiry"
    """Asks people, and completes with their answer."""
    BATCHABLE = "batchable"
    """Returns a range of work; workers are created for it."""
    BATCH_WORKER = "batch_worker"
    """Does one batch of a batchable step."""


class StepQuerySet(MachineQuerySet["Step"]):
    def visible_to(self, principal: Principal, permission: str = "tasks.read") -> StepQuerySet:
        """Is of a task for which the caller has a permission."""
        if authority.reach(principal, permission).is_everywhere:
            return self
        templates = TaskTemplate.objects.visible_to(principal, permission)
        return self.filter(task__template__in=templates)

    def in_flight(self) -> StepQuerySet:
        """Has an execution whose end is not evaluated yet."""
        return self.filter(state__in=sorted(IN_FLIGHT))

    def not_quarantined(self) -> StepQuerySet:
        """Belongs to a task that executors advance."""
        # IS NULL first: `advance_tries` is in no index, as writing it must stay cheap
        return self.filter(
            Q(task__advance_tries__isnull=True) | Q(task__advance_tries__lte=MOST_TRIES)
        )

    def ready(self, now: datetime) -> StepQuerySet:
        """May be enqueued: waits for nothing, and has attempts left."""
        unsatisfied = StepDependency.objects.unsatisfied().filter(child=OuterRef("pk"))
        return self.filter(
            Q(state=StepState.PENDING)
            | Q(state=StepState.WAITING_FOR_RETRY, next_retry_at__lte=now),
            ~Exists(unsatisfied),
            attempts__lt=F("max_attempts"),
        )

    def without_contents(self) -> StepQuerySet:
        """Leave out the columns that can be large."""
        return self.defer("result", "completion_metadata", "error")


class Step(models.Model):
    """One step of one task; each attempt at it is an execution."""

    State = StepState
    Kind = StepKind
    machine = STEPS

    id = models.UUIDField(primary_key=True, default=uuid_utils.uuid7, editable=False)
    task = models.ForeignKey(Task, on_delete=models.CASCADE, related_name="steps", db_index=False)
    task_id: UUID
    name = models.CharField(max_length=70)
    template_step = models.CharField(
        max_length=60, help_text="Its name in the template; all workers of a batch have the same."
    )
    kind = models.CharField(max_length=12, choices=StepKind.choices, default=StepKind.STANDARD)
    created_by = models.ForeignKey(
        "self", null=True, blank=True, on_delete=models.CASCADE, related_name="+", db_index=False,
        help_text="The decision or batchable step that created it.",
    )  # fmt: skip
    created_by_id: UUID | None
    batch = models.JSONField(
        null=True, blank=True, help_text="Of a batch worker: index, start and end of its part."
    )

    state = models.CharField(
        max_length=26,
        choices=[(state.value, state.value) for state in StepState],
        default=StepState.PENDING,
    )
    fence = models.PositiveIntegerField(
        default=0, help_text="Grows with each enqueueing and repair, and nothing resets it."
    )
    state_entered_at = models.DateTimeField()
    attempts = models.PositiveIntegerField(
        default=0, help_text="Counts for the retry policy; a reset sets it to 0."
    )
    max_attempts = models.PositiveSmallIntegerField(default=3)
    retryable = models.BooleanField(default=True)
    next_retry_at = models.DateTimeField(null=True, blank=True)
    last_failure_at = models.DateTimeField(null=True, blank=True)

    execution = models.ForeignKey(
        Execution, null=True, blank=True, on_delete=models.SET_NULL, related_name="+",
        db_index=False, help_text="The latest one; only its end counts.",
    )  # fmt: skip
    execution_id: UUID | None
    result = models.JSONField(null=True, blank=True, help_text="What its children see.")
    completion_metadata = models.JSONField(
        null=True, blank=True, help_text="The evidence for a result that was given by hand."
    )
    error = models.JSONField(null=True, blank=True, help_text="Why its last attempt failed.")
    ended_at = models.DateTimeField(null=True, blank=True)

    objects: ClassVar[StepQuerySet] = StepQuerySet.as_manager()  # type: ignore[assignment]

    class Meta:
        ordering = ["pk"]
        indexes = [
            # read to find steps whose message was lost
            models.Index("id", name="step_in_flight", condition=Q(state__in=sorted(IN_FLIGHT))),
            # read to find those that had no worker, see `engine.unserved`
            models.Index(
                KeyTransform("reason", "error"),
                name="step_error_by_reason",
                condition=Q(state="error"),
            ),
            # read by the database, when an execution or a step is pruned
            models.Index(
                "execution", name="step_by_execution", condition=Q(execution__isnull=False)
            ),
            models.Index(
                "created_by", name="step_by_creator", condition=Q(created_by__isnull=False)
            ),
        ]
        constraints = [
            models.UniqueConstraint("task", "name", name="step_name_is_unique_in_task"),
            models.CheckConstraint(
                name="step_state_is_known", condition=Q(state__in=[s.value for s in StepState])
            ),
            models.CheckConstraint(
                name="step_is_ended_if_and_only_if_its_state_is",
                condition=Q(ended_at__isnull=False, state__in=sorted(STEPS.ended))
                | Q(ended_at__isnull=True, state__in=sorted(set(StepState) - STEPS.ended)),
            ),
            models.CheckConstraint(
                name="step_waiting_for_retry_has_due_time",
                condition=~Q(state="waiting_for_retry") | Q(next_retry_at__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} of {self.task_id}"

    @property
    def place(self) -> Place:
        """That of its task, for scopes."""
        return self.task.place

    @property
    def is_terminal(self) -> bool:
        return self.state in STEPS.terminal

    def retry_eligible(self, now: datetime) -> bool:
        """Return True if another attempt is made now. A step in `error` has failed for good: only
        a repair leads out of it."""
        return (
            self.retryable
            and self.attempts < self.max_attempts
            and self.state == StepState.WAITING_FOR_RETRY
            and (self.next_retry_at is None or self.next_retry_at <= now)
        )


class StepDependencyQuerySet(models.QuerySet["StepDependency"]):
    def unsatisfied(self) -> StepDependencyQuerySet:
        """Dependencies that keep their child waiting."""
        return self.exclude(parent__state__in=sorted(SATISFIED)).exclude(
            tolerates_failure=True, parent__state__in=sorted(FAILED)
        )


class StepDependency(models.Model):
    """One edge of a task's graph: the child waits for the parent."""

    parent = models.ForeignKey(Step, on_delete=models.CASCADE, related_name="dependents")
    parent_id: UUID
    child = models.ForeignKey(
        Step, on_delete=models.CASCADE, related_name="dependencies", db_index=False
    )
    child_id: UUID
    tolerates_failure = models.BooleanField(
        default=False, help_text="The child may begin although the parent has failed."
    )

    objects = StepDependencyQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint("child", "parent", name="step_dependency_is_unique"),
        ]

    def __str__(self) -> str:
        return f"{self.child_id} after {self.parent_id}"


class StepExecution(models.Model):
    """An execution that was an attempt at a step. Executions themselves know nothing of tasks."""

    step = models.ForeignKey(Step, on_delete=models.CASCADE, related_name="executions")
    step_id: UUID
    execution = models.OneToOneField(
        Execution, on_delete=models.CASCADE, primary_key=True, related_name="+"
    )
    execution_id: UUID
    fence = models.PositiveIntegerField(help_text="The step's attempt when it was enqueued.")

    class Meta:
        ordering = ["fence"]

    def __str__(self) -> str:
        return f"{self.execution_id} for {self.step_id}"
