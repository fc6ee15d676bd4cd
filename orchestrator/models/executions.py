"""Executions and their history."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import UUID

from django.db import connection, models
from django.db.models import F, Q
from uuid_utils import compat as uuid_utils

from orchestrator.models.catalog import Action, longest_wait_ms
from orchestrator.models.claiming import ONLY_TO_BE_LOOKED_AT, ClaimQuerySet
from orchestrator.models.fleet import Worker
from orchestrator.state_machine import OPEN, TERMINAL, ExecutionStatus

if TYPE_CHECKING:
    from django_stubs_ext.db.models.manager import RelatedManager

STARTED = (ExecutionStatus.RUNNING, ExecutionStatus.CANCELING)
DISPATCHED = (ExecutionStatus.SCHEDULED, *STARTED)
DEADLINE_GRACE_SECONDS = 10.0
"""What a worker is left with after a deadline to stop its action and say so: half of what the
promise allows."""
BACKLOG = (ExecutionStatus.REQUESTED, ExecutionStatus.SCHEDULING)


class ExecutionQuerySet(ClaimQuerySet):
    def open(self) -> ExecutionQuerySet:
        """Not terminal. `ended_at` rather than status: the partial index is over it."""
        return self.filter(ended_at__isnull=True)

    def backlog(self, now: datetime) -> ExecutionQuerySet:
        """Waits for the executor, and may be looked at now; most urgent first."""
        return (
            self.open()
            .filter(status__in=BACKLOG, deadline_at__gt=now)
            .filter(Q(next_retry_at__isnull=True) | Q(next_retry_at__lte=now))
            .order_by("-priority", "pk")
        )

    def overdue_to_start(self, now: datetime) -> ExecutionQuerySet:
        """Dispatched, and not claimed in time."""
        return self.open().filter(status=ExecutionStatus.SCHEDULED, start_by__lte=now)

    def overdue_to_end(self, now: datetime) -> ExecutionQuerySet:
        """Started, and past the limit that its worker should have enforced.

        That limit is never later than the deadline, but its grace is a setting, and the promise
        must not depend on one.
        """
        out_of_grace = now - timedelta(seconds=DEADLINE_GRACE_SECONDS)
        return self.open().filter(
            Q(run_deadline_at__lte=now) | Q(deadline_at__lte=out_of_grace), status__in=STARTED
        )

    def past_deadline(self, now: datetime) -> ExecutionQuerySet:
        """Must be over by now, and did not start."""
        return self.open().filter(deadline_at__lte=now).exclude(status__in=STARTED)

    def held_by(self, worker: Worker) -> ExecutionQuerySet:
        """Dispatched to, or running on, this worker in any of its incarnations."""
        return self.open().filter(status__in=DISPATCHED, worker=worker)

    def unclaimed(self, now: datetime) -> ExecutionQuerySet:
        """Dispatched, not claimed, and still in time for it."""
        return self.open().filter(status=ExecutionStatus.SCHEDULED, start_by__gt=now)

    def load_by_worker(self) -> dict[int, int]:
        """How many executions each worker holds, by worker id."""
        return self._count_by_worker(DISPATCHED)

    def running_by_worker(self) -> dict[int, int]:
        """How many executions each worker has claimed and not ended, by worker id."""
        return self._count_by_worker(STARTED)

    def _count_by_worker(self, statuses: Collection[ExecutionStatus]) -> dict[int, int]:
        rows = (
            self.open()
            .filter(status__in=statuses, worker__isnull=False)
            .order_by()
            .values_list("worker_id")
            .annotate(held=models.Count("pk"))
        )
        return dict(rows)

    def with_actions(self) -> list[Execution]:
        """The rows, each with its action: see `ActionQuerySet.known`."""
        return add_actions(list(self))

    def without_contents(self) -> ExecutionQuerySet:
        """Leaves out what is not needed to decide: parameters and result, which can be large, and
        what is only there to be looked at."""
        return self.defer("parameters", "result", *ONLY_TO_BE_LOOKED_AT)

    def locked_for_batch(self, limit: int) -> ExecutionQuerySet:
        """The first `limit` rows; on PostgreSQL those that another executor holds are skipped.

        Call it inside a transaction. SQLite has one writer at a time and so nothing to skip.
        """
        queryset = self
        if connection.features.has_select_for_update_skip_locked:
            queryset = self.select_for_update(skip_locked=True, of=("self",))
        return queryset[:limit]


def add_actions(executions: list[Execution]) -> list[Execution]:
    """The same executions, each with its action, nearly always without asking the database."""
    actions = Action.objects.known({execution.action_id for execution in executions})
    for execution in executions:
        execution.action = actions[execution.action_id]
    return executions


class Execution(models.Model):
    """One run of one action, from its acceptance to exactly one terminal status."""

    Status = ExecutionStatus

    id = models.UUIDField(primary_key=True, default=uuid_utils.uuid7, editable=False)
    action = models.ForeignKey(Action, on_delete=models.PROTECT, db_index=False, related_name="+")
    action_id: int
    action_ref = models.CharField(max_length=130)
    parameters = models.JSONField(default=dict)
    priority = models.SmallIntegerField(default=0, help_text="Higher is scheduled first.")
    status = models.CharField(
        max_length=10,
        choices=[(status.value, status.value) for status in ExecutionStatus],
        default=ExecutionStatus.REQUESTED,
    )
    attempt = models.PositiveIntegerField(
        default=0, help_text="The fence: grows with each dispatch, and nothing resets it."
    )
    retry_count = models.PositiveIntegerField(default=0)
    worker = models.ForeignKey(
        Worker, null=True, on_delete=models.PROTECT, db_index=False, related_name="+"
    )
    worker_id: int | None
    worker_incarnation = models.PositiveIntegerField(null=True)
    pinned_worker = models.ForeignKey(
        Worker, null=True, on_delete=models.PROTECT, db_index=False, related_name="+"
    )
    pinned_worker_id: int | None
    timeout_seconds = models.FloatField(help_text="How long the action may run.")
    queue_ttl_ms = models.PositiveIntegerField(null=True)
    scheduled_timeout_seconds = models.FloatField(null=True)
    worker_selector = models.JSONField(
        null=True, help_text="Labels that its worker must have; empty for what its action asks."
    )
    retry_policy = models.JSONField(
        null=True, help_text="See `orchestrator.retry_policy`; empty for that of its action."
    )
    wait_reason = models.CharField(max_length=200, blank=True)

    start_by = models.DateTimeField(null=True, help_text="A claim after this is refused.")
    run_deadline_at = models.DateTimeField(null=True)
    next_retry_at = models.DateTimeField(null=True, help_text="Not scheduled before this.")
    deadline_at = models.DateTimeField(help_text="Over by then, whatever happens.")

    reason = models.CharField(max_length=40, blank=True)
    result = models.JSONField(null=True)
    requested_by = models.CharField(max_length=150, blank=True)
    correlation_id = models.CharField(max_length=100, null=True)  # noqa: DJ001 - NULL is not indexed
    idempotency_key = models.CharField(max_length=200, null=True)  # noqa: DJ001 - NULL is unique

    created_at = models.DateTimeField()
    scheduled_at = models.DateTimeField(null=True)
    dispatched_again_at = models.DateTimeField(
        null=True, help_text="When its dispatch, which nobody had claimed, was last sent again."
    )
    started_at = models.DateTimeField(null=True)
    cancel_requested_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)

    objects: ClassVar[ExecutionQuerySet] = ExecutionQuerySet.as_manager()  # type: ignore[assignment]

    if TYPE_CHECKING:
        history: RelatedManager[ExecutionEvent]

    class Meta:
        ordering = ["-pk"]
        # no index contains `status` or a due time: PostgreSQL then updates rows in place (HOT)
        indexes = [
            # the order in which the backlog is served; sweeps read the open ones through it too
            models.Index(
                F("priority").desc(),
                "id",
                name="execution_open",
                condition=Q(ended_at__isnull=True),
            ),
            models.Index("action_ref", "id", name="execution_by_action"),
            models.Index(
                "correlation_id",
                name="execution_by_correlation",
                condition=Q(correlation_id__isnull=False),
            ),
        ]
        constraints = [
            models.UniqueConstraint(
                "idempotency_key",
                name="execution_idempotency_key_is_unique",
                condition=Q(idempotency_key__isnull=False),
            ),
            models.CheckConstraint(
                name="execution_status_is_known",
                condition=Q(status__in=[status.value for status in ExecutionStatus]),
            ),
            models.CheckConstraint(
                name="execution_is_ended_if_and_only_if_terminal",
                condition=Q(ended_at__isnull=False, status__in=sorted(TERMINAL))
                | Q(ended_at__isnull=True, status__in=sorted(OPEN)),
            ),
            models.CheckConstraint(
                name="execution_that_ended_has_reason",
                condition=Q(ended_at__isnull=True) | ~Q(reason=""),
            ),
            models.CheckConstraint(
                name="execution_dispatched_has_worker_and_due_time",
                condition=~Q(status="scheduled")
                | Q(worker__isnull=False, start_by__isnull=False, attempt__gte=1),
            ),
            models.CheckConstraint(
                name="execution_started_has_due_time",
                condition=~Q(status__in=["running", "canceling"])
                | Q(worker__isnull=False, run_deadline_at__isnull=False, started_at__isnull=False),
            ),
            models.CheckConstraint(
                name="execution_deadline_is_after_creation",
                condition=Q(deadline_at__gt=F("created_at")),
            ),
            models.CheckConstraint(
                name="execution_timeout_is_positive", condition=Q(timeout_seconds__gt=0)
            ),
        ]

    def __str__(self) -> str:
        return f"{self.action_ref} {self.id}"

    @property
    def is_terminal(self) -> bool:
        return self.status in TERMINAL

    @property
    def wanted_labels(self) -> dict[str, str]:
        """The labels that its worker must have."""
        own = self.worker_selector
        wanted: dict[str, str] = self.action.worker_selector if own is None else own
        return wanted

    @property
    def wanted_retries(self) -> dict[str, Any]:
        """Its retry policy, as `orchestrator.retry_policy` reads it."""
        own = self.retry_policy
        wanted: dict[str, Any] = self.action.retry_policy if own is None else own
        return wanted

    @property
    def dispatch_ttl_ms(self) -> int:
        """The longest wait for its worker: in its queue, where it is the message's TTL, and, with
        a grace, to the claim."""
        return longest_wait_ms(self.queue_ttl_ms, self.scheduled_timeout_seconds)


class ExecutionEventQuerySet(models.QuerySet["ExecutionEvent"]):
    def of(self, execution_id: UUID) -> ExecutionEventQuerySet:
        """The history of one execution, oldest first."""
        return self.filter(execution_id=execution_id).order_by("pk")


class ExecutionEvent(models.Model):
    """One transition that happened. Written with it, never changed."""

    execution = models.ForeignKey(Execution, on_delete=models.CASCADE, related_name="history")
    event = models.CharField(max_length=20)
    from_status = models.CharField(max_length=10)
    to_status = models.CharField(max_length=10)
    attempt = models.PositiveIntegerField()
    actor = models.CharField(max_length=150)
    reason = models.CharField(max_length=40, blank=True)
    at = models.DateTimeField()

    objects = ExecutionEventQuerySet.as_manager()

    class Meta:
        ordering = ["pk"]

    def __str__(self) -> str:
        return f"{self.from_status} -> {self.to_status} ({self.event})"
