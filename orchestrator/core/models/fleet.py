"""Workers and their events."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from django.conf import settings
from django.db import models
from django.db.models import Q

from orchestrator.core import authority, clock, words
from orchestrator.core import isolation as levels
from orchestrator.core.authority import Place, Principal
from orchestrator.core.frame import WORKERS
from orchestrator.core.queue_terms import DEFAULT

HEARTBEATS_AHEAD_BY = timedelta(seconds=15)
"""A heartbeat counts as being in the future only if it is ahead by more than this: processes on
slow machines, each with its own clock, may differ by so much."""

KINDS = words.kinds(
    success="active fresh healthy", warning="draining", danger="stale unhealthy lost"
)
"""Kinds of a worker's status, of its heartbeat, and of its events."""


LONGEST_PAUSE = timedelta(hours=1)
"""No pause is longer, so that one that ends later was written before the clock was set back."""


def paused(pauses: Mapping[str, str], *, now: datetime) -> dict[str, datetime]:
    """The pauses of a worker's row that last, each with its end, by what is paused: the name of a
    queue, or an action as `Execution.lane_key` names it."""
    ends = {name: datetime.fromisoformat(text) for name, text in pauses.items()}
    return {name: until for name, until in ends.items() if now < until <= now + LONGEST_PAUSE}


def fresh_between(now: datetime) -> tuple[datetime, datetime]:
    """The oldest and the newest heartbeat of a worker that is fresh.

    For one staleness window after the clock was set, the range also covers heartbeats that were
    written before.
    """
    window_seconds = settings.MUSTER.staleness_seconds
    behind, ahead = clock.displaced(within_seconds=window_seconds)
    return now - timedelta(seconds=window_seconds) - behind, now + HEARTBEATS_AHEAD_BY + ahead


class WorkerQuerySet(models.QuerySet["Worker"]):
    def visible_to(self, principal: Principal, permission: str = "workers.read") -> WorkerQuerySet:
        """Has labels for which the caller has a permission."""
        reach = authority.reach(principal, permission)
        if reach.is_everywhere:
            return self
        # labels are compared here: the databases differ in how they look into JSON
        every = Worker.objects.values_list("pk", "labels")
        return self.filter(
            pk__in=[pk for pk, labels in every if reach.covers(Place(WORKERS, labels=labels))]
        )

    def known(self) -> WorkerQuerySet:
        """Not retired."""
        return self.filter(retired_at__isnull=True)

    def up(self) -> WorkerQuerySet:
        """Registered, and neither left nor lost since."""
        return self.filter(heartbeat_at__isnull=False, gone_at__isnull=True)

    def fresh(self, now: datetime) -> WorkerQuerySet:
        """Heartbeat not older than the staleness window, and not in the future."""
        return self.filter(heartbeat_at__range=fresh_between(now))

    def reachable(self, now: datetime) -> WorkerQuerySet:
        """Active and fresh: processes what it is given. It may still be cordoned."""
        return self.fresh(now).filter(status=Worker.Status.ACTIVE)

    def eligible(self, now: datetime) -> WorkerQuerySet:
        """May be given work that is not pinned to it."""
        return self.reachable(now).filter(cordoned=False)

    def lacking_code(self) -> WorkerQuerySet:
        """Up, and without the code of some pack: nearly always none."""
        return self.up().exclude(missing_code={})

    def stale(self, now: datetime) -> WorkerQuerySet:
        """Believed to be up, but silent for longer than the staleness window.

        This includes a heartbeat in the future: none has come since the clock was set back.
        """
        oldest, newest = fresh_between(now)
        return self.up().filter(Q(heartbeat_at__lt=oldest) | Q(heartbeat_at__gt=newest))

    def unheld(self) -> WorkerQuerySet:
        """Lock those that no other session holds, until the transaction ends.

        Call it inside a transaction. SQLite has one writer at a time.
        """
        return self.select_for_update(skip_locked=True, no_key=True)

    def gone_since(self, at: datetime) -> WorkerQuerySet:
        """Left or lost before then, and not retired."""
        return self.known().filter(gone_at__lt=at)


class Worker(models.Model):
    """A named place where executions run. Its `incarnation` grows with each life of its process.

    Three independent things may keep work from it, and undoing one does not undo another: its
    `status`, a cordon, and a failed check, which makes an active worker inactive.
    """

    class Status(models.TextChoices):
        ACTIVE = "active"
        INACTIVE = "inactive"
        """Its process is gone (`gone_at`), was never there, or fails a check."""
        DRAINING = "draining"

    name = models.CharField(max_length=100, unique=True)
    incarnation = models.PositiveIntegerField(default=0)
    status = models.CharField(max_length=10, choices=Status.choices, default=Status.INACTIVE)
    status_reason = models.CharField(max_length=200, blank=True)
    failed_checks = models.JSONField(
        default=dict, blank=True, help_text="Name of each check that fails, and what it found."
    )
    cordoned = models.BooleanField(
        default=False, help_text="Gets only executions that name this worker."
    )
    cordon_reason = models.CharField(max_length=200, blank=True)
    capacity = models.PositiveIntegerField(
        default=1, help_text="The most actions that it runs at the same time."
    )
    runtimes = models.JSONField(default=list, help_text="Kinds of action it offers.")
    isolation = models.CharField(
        max_length=10,
        default=levels.PROCESS,
        help_text="The isolation that it gives to the processes of actions.",
    )
    labels = models.JSONField(default=dict, blank=True)
    missing_code = models.JSONField(
        default=dict,
        blank=True,
        help_text="Each pack, or single action of one, whose code its host lacks, and why.",
    )
    queues = models.JSONField(
        default=dict,
        blank=True,
        help_text="Queues that it serves, and the most slots for each; empty for the default one.",
    )
    queue_pauses = models.JSONField(
        default=dict, blank=True, help_text="Queues that it takes nothing of, and until when."
    )
    registered_at = models.DateTimeField(null=True, blank=True)
    heartbeat_at = models.DateTimeField(null=True, blank=True)
    gone_at = models.DateTimeField(
        null=True, blank=True, help_text="Since when its process has left, or was declared lost."
    )
    retired_at = models.DateTimeField(
        null=True, blank=True, help_text="Since when it has no queue and nobody expects it back."
    )
    host = models.CharField(max_length=255, blank=True)
    pid = models.PositiveIntegerField(null=True, blank=True)
    version = models.CharField(max_length=40, blank=True)
    """Celery's. Ours is in pyproject.toml alone, which no host of a worker needs to have."""

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
            models.CheckConstraint(
                name="worker_that_is_gone_is_inactive",
                condition=Q(status="inactive") | Q(gone_at__isnull=True, retired_at__isnull=True),
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def place(self) -> Place:
        """Its labels, for scopes."""
        return Place(WORKERS, self.name, self.labels)

    @property
    def served(self) -> dict[str, int | None]:
        """The queues that it serves, each with the most slots for it; None for all of them."""
        return self.queues or {DEFAULT: None}

    @property
    def is_up(self) -> bool:
        """True if its process is alive, as far as is known."""
        return self.heartbeat_at is not None and self.gone_at is None

    def is_fresh(self, now: datetime) -> bool:
        """Return True if its heartbeat is not older than the staleness window."""
        if self.heartbeat_at is None:
            return False
        oldest, newest = fresh_between(now)
        return bool(oldest <= self.heartbeat_at <= newest)

    def heartbeat_state(self, now: datetime) -> str:
        """`fresh` or `stale`; for a worker that is down `gone`, `retired`, or `never`."""
        if self.is_up:
            return "fresh" if self.is_fresh(now) else "stale"
        if self.retired_at:
            return "retired"
        return "never" if self.heartbeat_at is None else "gone"

    def is_eligible(self, now: datetime) -> bool:
        """As `WorkerQuerySet.eligible`."""
        return self.status == Worker.Status.ACTIVE and not self.cordoned and self.is_fresh(now)


class WorkerEventQuerySet(models.QuerySet["WorkerEvent"]):
    def of(self, worker_id: int) -> WorkerEventQuerySet:
        """The events of one worker, newest first."""
        return self.filter(worker_id=worker_id).order_by("-pk")


class WorkerEvent(models.Model):
    """Something that happened to a worker: by whom, why, when. Written with it, never changed."""

    class Kind(models.TextChoices):
        REGISTERED = "registered"
        LEFT = "left"
        LOST = "lost"
        UNHEALTHY = "unhealthy"
        HEALTHY = "healthy"
        LACKS_CODE = "lacks_code"
        HAS_CODE = "has_code"
        CORDONED = "cordoned"
        UNCORDONED = "uncordoned"
        DRAINING = "draining"
        RETIRED = "retired"

    worker = models.ForeignKey(Worker, on_delete=models.CASCADE, related_name="events")
    kind = models.CharField(max_length=12, choices=Kind.choices)
    incarnation = models.PositiveIntegerField()
    actor = models.CharField(max_length=150)
    reason = models.CharField(max_length=200, blank=True)
    at = models.DateTimeField()

    objects = WorkerEventQuerySet.as_manager()

    class Meta:
        ordering = ["pk"]

    def __str__(self) -> str:
        return f"{self.kind} by {self.actor}"
