"""Tasks."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import ClassVar

from django.db import models
from django.db.models import Q
from uuid_utils import compat as uuid_utils

from orchestrator.core import authority
from orchestrator.core.authority import Place, Principal
from orchestrator.core.models.maintenance import PROCESSES_DIFFER_BY
from orchestrator.core.state_machine import MachineQuerySet
from orchestrator.workflows.models.templates import TaskTemplate
from orchestrator.workflows.states import TASKS, TaskState

MOST_TRIES = 2
"""An executor that died, or failed, so often while it advanced a task leaves it to a person."""
QUARANTINED = MOST_TRIES + 1
"""`advance_tries` of a task that no executor advances."""


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
