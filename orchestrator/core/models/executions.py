"""Executions and their history."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import UUID

from django.db import models, transaction
from django.db.models import Exists, F, OuterRef, Q
from uuid_utils import compat as uuid_utils

from orchestrator.core import authority, database, queue_terms
from orchestrator.core import isolation as levels
from orchestrator.core.authority import Place, Principal
from orchestrator.core.frame import PACKS
from orchestrator.core.models.catalog import WITHOUT_CODE, Action, longest_wait_ms
from orchestrator.core.models.execution_sets import BACKLOG, SUSPECT_FROM, ExecutionSets
from orchestrator.core.models.fleet import Worker
from orchestrator.core.models.maintenance import PROCESSES_DIFFER_BY
from orchestrator.core.states import EXECUTIONS, OPEN, TERMINAL, AttemptKey, ExecutionStatus, Lane

if TYPE_CHECKING:
    from django_stubs_ext.db.models.manager import RelatedManager

CANCEL_REASON_MAX = REQUEST_REASON_MAX = 500
QUEUE_NAME_MAX = 100
OF_ACTION = "action:"
"""The beginning of what a worker pauses of work without a queue. No queue's name has a colon."""


def of_release(names: Iterable[str], release_id: int) -> tuple[str, ...]:
    """Name a pack and its actions as a release has them, for `missing_code`."""
    return tuple(f"{name}@{release_id}" for name in names)


class ExecutionQuerySet(ExecutionSets["Execution"]):
    """Executions, and what takes their rows in hand."""

    def paused_by_a_later_clock(self, now: datetime) -> ExecutionQuerySet:
        """Waits for a time that was written when the clock showed more than now."""
        latest = now + PROCESSES_DIFFER_BY
        later = ExecutionEvent.objects.filter(execution_id=OuterRef("pk"), at__gt=latest)
        waiting = self.open().filter(status__in=BACKLOG, next_retry_at__gt=now)
        return waiting.filter(Exists(later))

    def with_actions(self) -> list[Execution]:
        """The rows, each with its action: see `ActionQuerySet.known`."""
        return add_actions(list(self))

    def postpone(self, waits: Mapping[UUID, tuple[str, datetime]]) -> int:
        """Let each of these wait for its reason until its time; returns how many. Rows that another
        session holds stay as they are, and are not waited for."""
        with transaction.atomic():
            database.hold_briefly()
            rows = list(self.filter(pk__in=waits).order_by("pk")._held().only("pk"))
            for row in rows:
                row.wait_reason, row.next_retry_at = waits[row.pk]
            if len({waits[row.pk] for row in rows}) == 1:
                why, until = waits[rows[0].pk]
                held = self.model.objects.filter(pk__in=[row.pk for row in rows])
                return held.update(wait_reason=why, next_retry_at=until)
            return self.model.objects.bulk_update(rows, ["wait_reason", "next_retry_at"])


def add_actions(executions: list[Execution]) -> list[Execution]:
    """Set the action of each execution, as its release defines it, nearly always without a query;
    returns the same executions."""
    actions = Action.objects.known({(each.action_id, each.release_id) for each in executions})
    for execution in executions:
        execution.action = actions[execution.action_id, execution.release_id]
    return executions


class Execution(models.Model):
    """One run of one action, from its acceptance to exactly one terminal status."""

    Status = ExecutionStatus
    machine = EXECUTIONS

    id = models.UUIDField(primary_key=True, default=uuid_utils.uuid7, editable=False)
    action = models.ForeignKey(Action, on_delete=models.PROTECT, db_index=False, related_name="+")
    action_id: int
    action_ref = models.CharField(max_length=130)
    release = models.ForeignKey(
        "orchestrator.Release",
        null=True,
        on_delete=models.DO_NOTHING,
        db_index=False,
        db_constraint=False,
        related_name="+",
        help_text="The release of its pack at its acceptance; empty if the pack had none.",
    )
    release_id: int | None
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
    lost_workers = models.PositiveSmallIntegerField(
        default=0, help_text="Attempts that ended with the loss of their worker."
    )
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
    queue = models.CharField(  # noqa: DJ001 - NULL is the default queue
        max_length=QUEUE_NAME_MAX, null=True, help_text="Its queue; empty for the default one."
    )
    lane = models.CharField(  # noqa: DJ001 - NULL outside of queues
        max_length=5,
        null=True,
        choices=[(lane.value, lane.value) for lane in Lane],
        help_text="The lane of its queue; empty outside of queues.",
    )
    worker_selector = models.JSONField(
        null=True, help_text="Labels that its worker must have; empty for what its action asks."
    )
    retry_policy = models.JSONField(
        null=True, help_text="See `orchestrator.core.retry_policy`; empty for that of its action."
    )
    wait_reason = models.CharField(max_length=200, blank=True)

    start_by = models.DateTimeField(null=True, help_text="A claim after this is refused.")
    run_deadline_at = models.DateTimeField(null=True)
    next_retry_at = models.DateTimeField(null=True, help_text="Not scheduled before this.")
    deadline_at = models.DateTimeField(help_text="It ends at the latest then.")

    reason = models.CharField(max_length=40, blank=True)
    cancel_reason = models.CharField(
        max_length=CANCEL_REASON_MAX,
        blank=True,
        default="",
        help_text="Why it was cancelled, in the words of who did.",
    )
    result = models.JSONField(null=True)
    requested_by = models.CharField(max_length=150, blank=True)
    request_reason = models.CharField(
        max_length=REQUEST_REASON_MAX,
        blank=True,
        default="",
        help_text="Why it was requested, in the words of who did.",
    )
    correlation_id = models.CharField(max_length=100, null=True)  # noqa: DJ001 - NULL is not indexed
    idempotency_key = models.CharField(max_length=200, null=True)  # noqa: DJ001 - NULL is unique
    key_owner = models.BigIntegerField(
        null=True,
        help_text="Whose key it is, as a number of the authorizer; 0 is the installation itself.",
    )

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
            # the order in which the backlog of each queue is served; sweeps read the open ones
            # through it too
            models.Index(
                "queue",
                F("priority").desc(),
                "id",
                name="execution_open",
                condition=Q(ended_at__isnull=True),
            ),
            models.Index(
                "id",
                name="execution_suspect",
                condition=Q(ended_at__isnull=True, lost_workers__gte=SUSPECT_FROM),
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
                "key_owner",
                "idempotency_key",
                name="execution_idempotency_key_of_owner_is_unique",
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
                name="execution_has_lane_if_and_only_if_queued",
                condition=Q(queue__isnull=True, lane__isnull=True)
                | Q(
                    queue__isnull=False,
                    lane__isnull=False,
                    lane__in=[lane.value for lane in Lane],
                ),
            ),
            models.CheckConstraint(
                name="execution_timeout_is_positive", condition=Q(timeout_seconds__gt=0)
            ),
        ]

    def __str__(self) -> str:
        return f"{self.action_ref} {self.id}"

    @property
    def key(self) -> AttemptKey:
        """This execution at this attempt, as a message names it."""
        return self.pk, self.attempt

    @property
    def place(self) -> Place:
        """The pack of its action, for scopes."""
        return Place.of_ref(PACKS, self.action_ref)

    @property
    def worker_name(self) -> str | None:
        """The name of the worker of its latest attempt."""
        return self.worker.name if self.worker else None

    @property
    def is_terminal(self) -> bool:
        return self.status in TERMINAL

    @property
    def is_suspect(self) -> bool:
        """True if it may be the cause of the loss of its workers."""
        return self.lost_workers >= SUSPECT_FROM

    @property
    def subscription(self) -> str:
        """The name under which workers subscribe to its queue, or to the retry lane of that."""
        return queue_terms.subscription(self.queue, is_retry=self.lane == Lane.RETRY)

    @property
    def wanted_labels(self) -> dict[str, str]:
        """The labels that its worker must have."""
        own = self.worker_selector
        wanted: dict[str, str] = self.action.worker_selector if own is None else own
        return wanted

    @property
    def needed_code(self) -> tuple[str, ...]:
        """Code that its worker's host must have: its pack and its action, named as in
        `missing_code`."""
        if self.action.runtime in WITHOUT_CODE:
            return ()
        names = self.action_ref.partition(".")[0], self.action_ref
        return names if self.release_id is None else of_release(names, self.release_id)

    @property
    def lane_key(self) -> str:
        """The lane that a worker pauses if its action says "not now": its queue, or, without one,
        its action alone."""
        return self.queue or f"{OF_ACTION}{self.action_ref}"

    @property
    def needed_isolation(self) -> str:
        """The isolation that its worker must give to processes: containers have their own."""
        stated: str = self.action.isolation
        return stated if stated == levels.USER else levels.PROCESS

    @property
    def wanted_retries(self) -> dict[str, Any]:
        """Its retry policy, as `orchestrator.core.retry_policy` reads it."""
        own = self.retry_policy
        wanted: dict[str, Any] = self.action.retry_policy if own is None else own
        return wanted

    @property
    def dispatch_ttl_ms(self) -> int:
        """The longest wait in its worker's queue: the TTL of the message, and, with a grace, the
        limit of its claim."""
        return longest_wait_ms(self.queue_ttl_ms, self.scheduled_timeout_seconds)


class ExecutionEventQuerySet(models.QuerySet["ExecutionEvent"]):
    def visible_to(
        self, principal: Principal, permission: str = "executions.read"
    ) -> ExecutionEventQuerySet:
        """Belongs to an execution for which the caller has a permission."""
        if authority.reach(principal, permission).is_everywhere:
            return self
        return self.filter(execution__in=Execution.objects.visible_to(principal, permission))

    def of(self, execution_id: UUID) -> ExecutionEventQuerySet:
        """The history of one execution, oldest first."""
        return self.filter(execution_id=execution_id).order_by("pk")


class ExecutionEvent(models.Model):
    """One transition that happened. Written with it; the database lets nobody change it."""

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
        constraints = [
            models.UniqueConstraint(
                "execution",
                name="execution_ends_once",
                condition=Q(to_status__in=sorted(TERMINAL)),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.from_status} -> {self.to_status} ({self.event})"
