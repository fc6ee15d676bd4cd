"""Task templates, tasks, their steps, and their history."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, ClassVar
from uuid import UUID

from django.db import models
from django.db.models import Exists, F, OuterRef, Q
from uuid_utils import compat as uuid_utils

from orchestrator.core import authority
from orchestrator.core.authority import Place, Principal
from orchestrator.core.frame import NAMESPACES
from orchestrator.core.models.catalog import Pack
from orchestrator.core.models.executions import Execution
from orchestrator.core.models.maintenance import PROCESSES_DIFFER_BY
from orchestrator.core.state_machine import MachineQuerySet
from orchestrator.workflows.states import STEPS, TASKS, StepState, TaskState
from orchestrator.workflows.states.steps import FAILED, IN_FLIGHT, SATISFIED

if TYPE_CHECKING:
    from django_stubs_ext.db.models.manager import RelatedManager


MOST_TRIES = 2
"""An executor that died, or failed, so often while it advanced a task leaves it to a person."""
OF_TASK = "task:"
"""The beginning of `requested_by` of each execution that a task has requested for a step."""
QUARANTINED = MOST_TRIES + 1
"""`advance_tries` of a task that no executor advances."""


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


class TaskTemplateQuerySet(models.QuerySet["TaskTemplate"]):
    def visible_to(
        self, principal: Principal, permission: str = "templates.read"
    ) -> TaskTemplateQuerySet:
        """Is in a namespace for which the caller has a permission."""
        reach = authority.reach(principal, permission)
        return (
            self if reach.is_everywhere else self.filter(reach.condition(NAMESPACES, "namespace"))
        )


class TaskTemplate(models.Model):
    """A graph of steps, named `namespace/name/version`. Several versions can coexist.

    A version never changes once a task has run it.
    """

    pack = models.ForeignKey(
        Pack, null=True, blank=True, on_delete=models.PROTECT, related_name="templates"
    )
    namespace = models.CharField(max_length=29)
    name = models.CharField(max_length=60)
    version = models.CharField(max_length=40, help_text="Semantic version, such as 1.0.0.")
    description = models.TextField(blank=True)
    definition = models.JSONField(help_text="As written in its YAML, checked.")
    digest = models.CharField(max_length=64, help_text="SHA-256 of the definition.")
    enabled = models.BooleanField(default=True, help_text="Whether tasks may be requested.")
    installed_at = models.DateTimeField()

    objects = TaskTemplateQuerySet.as_manager()

    if TYPE_CHECKING:
        tasks: RelatedManager[Task]

    class Meta:
        ordering = ["namespace", "name", "version"]
        constraints = [
            models.UniqueConstraint(
                "namespace", "name", "version", name="task_template_version_is_unique"
            ),
        ]

    def __str__(self) -> str:
        return self.ref

    @property
    def ref(self) -> str:
        return f"{self.namespace}/{self.name}/{self.version}"

    @property
    def place(self) -> Place:
        """Its namespace, for scopes."""
        return Place(NAMESPACES, self.namespace)


def may_scan(*, states: Collection[str] = (), **columns: str | None) -> bool:
    """True if no index leads to the few tasks that may be in these states, or have these values in
    columns: a list then looks at `cursors.LOOKED_AT_LIMIT` of them at a time, see ADR 50."""
    if states and TASKS.ended.isdisjoint(states):
        return False
    return bool(states) or any(value is not None for value in columns.values())


class TaskQuerySet(MachineQuerySet["Task"]):
    def visible_to(self, principal: Principal, permission: str = "tasks.read") -> TaskQuerySet:
        """Runs templates of namespaces for which the caller has a permission."""
        if authority.reach(principal, permission).is_everywhere:
            return self
        return self.filter(template__in=TaskTemplate.objects.visible_to(principal, permission))

    def open(self) -> TaskQuerySet:
        """Neither terminal nor in error. Filters on `ended_at`, not on state: the indexes are on
        it."""
        return self.filter(ended_at__isnull=True)

    def in_state(self, *states: str) -> TaskQuerySet:
        """In any of these states. If all of them are open, only the partial indexes of the open
        ones are read."""
        rows = self.open() if TASKS.ended.isdisjoint(states) else self
        return rows.filter(state__in=states)

    def of_templates(self, **names: str) -> TaskQuerySet:
        """Runs one of the templates of this `namespace`, `name` and `version`."""
        # a list of ids rather than a join: the index is over (template, id)
        ids = TaskTemplate.objects.filter(**names).values_list("pk", flat=True)
        return self.filter(template__in=list(ids))

    def retry_due(self, now: datetime) -> TaskQuerySet:
        """Has a step whose next attempt is due."""
        return self.open().filter(next_retry_at__lte=now)

    def not_begun(self, wait: timedelta, now: datetime) -> TaskQuerySet:
        """Requested at least this long ago, or by a clock that was set back since, and not advanced
        yet."""
        latest = now + PROCESSES_DIFFER_BY
        long_ago = Q(state_entered_at__lte=now - wait) | Q(state_entered_at__gt=latest)
        return self.open().filter(long_ago, state=TaskState.PENDING)


class Task(models.Model):
    """One run of a task template."""

    State = TaskState
    machine = TASKS

    id = models.UUIDField(primary_key=True, default=uuid_utils.uuid7, editable=False)
    template = models.ForeignKey(TaskTemplate, on_delete=models.PROTECT, related_name="tasks")
    template_id: int
    environment = models.CharField(
        max_length=60, blank=True, help_text="The environment whose overrides apply."
    )
    context = models.JSONField(default=dict)
    priority = models.SmallIntegerField(default=0, help_text="The priority of its executions.")

    state = models.CharField(
        max_length=24,
        choices=[(state.value, state.value) for state in TaskState],
        default=TaskState.PENDING,
    )
    fence = models.PositiveIntegerField(default=0, help_text="Grows with each transition.")
    state_entered_at = models.DateTimeField()
    clock_started_at = models.DateTimeField(
        help_text="From when staleness counts: the state's entry, later progress in it, or the "
        "retry that it waits for, if that is later."
    )
    next_retry_at = models.DateTimeField(
        null=True, blank=True, help_text="When the first of its steps may be tried again."
    )
    advance_tries = models.PositiveSmallIntegerField(
        null=True, blank=True,
        help_text="How often an executor began to advance it and did not come to the end; "
        "beyond the most it is quarantined.",
    )  # fmt: skip

    releases = models.JSONField(
        null=True, blank=True,
        help_text="By pack, the release that its steps run: that of its request. Empty for packs "
        "without releases, and if its template asks for the latest.",
    )  # fmt: skip

    identity = models.CharField(max_length=64, null=True, blank=True, unique=True)
    idempotency_key = models.CharField(max_length=200, blank=True)
    initiator = models.CharField(max_length=150, blank=True)
    source_system = models.CharField(max_length=150, blank=True)
    reason = models.CharField(max_length=500, blank=True, help_text="Why it was requested.")
    tags = models.JSONField(default=list, blank=True)
    correlation_id = models.CharField(max_length=100, null=True, blank=True)  # noqa: DJ001 - not indexed
    parent_correlation_id = models.CharField(max_length=100, null=True, blank=True)  # noqa: DJ001
    requested_by = models.CharField(max_length=150, blank=True)

    requester_number = models.BigIntegerField(
        null=True, blank=True, help_text="Who requested it, as a number of the authorizer."
    )

    created_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)

    objects: ClassVar[TaskQuerySet] = TaskQuerySet.as_manager()  # type: ignore[assignment]

    if TYPE_CHECKING:
        steps: RelatedManager[Step]
        history: RelatedManager[TransitionRecord]

    class Meta:
        ordering = ["-pk"]
        indexes = [
            # open tasks by the time in their state, and by their age: only these can become stale,
            # and the detection reads these indexes
            models.Index(
                "template",
                "state",
                "clock_started_at",
                name="task_open_by_clock",
                include=["environment", "id"],
                condition=Q(ended_at__isnull=True),
            ),
            models.Index(
                "template",
                "created_at",
                name="task_open_by_age",
                include=["environment", "id"],
                condition=Q(ended_at__isnull=True),
            ),
            # tasks that nobody has advanced yet, in case their message was lost
            models.Index(
                "state_entered_at",
                name="task_not_begun",
                condition=Q(ended_at__isnull=True, state="pending"),
            ),
            models.Index(
                "next_retry_at",
                name="task_retry_due",
                condition=Q(ended_at__isnull=True, next_retry_at__isnull=False),
            ),
            models.Index("template", "id", name="task_by_template"),
            models.Index(
                "correlation_id",
                name="task_by_correlation",
                condition=Q(correlation_id__isnull=False),
            ),
        ]
        constraints = [
            models.CheckConstraint(
                name="task_state_is_known", condition=Q(state__in=[s.value for s in TaskState])
            ),
            models.CheckConstraint(
                name="task_is_ended_if_and_only_if_its_state_is",
                condition=Q(ended_at__isnull=False, state__in=sorted(TASKS.ended))
                | Q(ended_at__isnull=True, state__in=sorted(set(TaskState) - TASKS.ended)),
            ),
        ]

    def __str__(self) -> str:
        return f"task {self.id}"

    @property
    def place(self) -> Place:
        """The namespace of its template, for scopes."""
        return self.template.place

    @property
    def is_terminal(self) -> bool:
        return self.state in TASKS.terminal

    @property
    def is_quarantined(self) -> bool:
        """Return True if no executor advances it until somebody repairs or releases it."""
        return self.advance_tries is not None and self.advance_tries > MOST_TRIES


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

    def handed_in(self) -> StepQuerySet:
        """Its execution has ended, and the result is not evaluated yet."""
        return self.filter(state=StepState.ENQUEUED_FOR_ORCHESTRATION)

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

    if TYPE_CHECKING:
        executions: RelatedManager[StepExecution]
        dependencies: RelatedManager[StepDependency]
        history: RelatedManager[TransitionRecord]

    class Meta:
        ordering = ["pk"]
        indexes = [
            # read to find steps whose message was lost
            models.Index("id", name="step_in_flight", condition=Q(state__in=sorted(IN_FLIGHT))),
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
