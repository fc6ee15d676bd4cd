"""Sensors, the services that run them, and which service runs which."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, ClassVar
from uuid import UUID

from django.db import models
from django.db.models import Q
from uuid_utils import compat as uuid_utils

from orchestrator.automation.models.reads import OfPacks
from orchestrator.automation.models.switchable import Switchable
from orchestrator.automation.models.triggers import Trigger
from orchestrator.automation.states import ASSIGNMENTS, HELD, AssignmentState
from orchestrator.core.authority import Place
from orchestrator.core.models import Pack, Release
from orchestrator.core.state_machine import MachineQuerySet

if TYPE_CHECKING:
    from django_stubs_ext.db.models.manager import RelatedManager

POLL = "poll"
"""The runtime of a sensor that Muster brings itself: it polls for one trigger."""
LOG_BYTES = 1_048_576
"""The most that is kept of a sensor's log."""
ENDING_GRACE = timedelta(seconds=5)
"""For so long beyond a lease a service may take to end a sensor."""


class SensorQuerySet(OfPacks["Sensor"]):
    read_by = "sensors.read"

    def in_use(self) -> SensorQuerySet:
        """Is in its pack still."""
        return self.filter(retired_at__isnull=True)


class Sensor(Switchable):
    """A program that watches, and reports events: of a pack, or the poll of a trigger."""

    pack = models.ForeignKey(
        Pack, null=True, blank=True, on_delete=models.PROTECT, related_name="sensors",
        help_text="Empty for the polls that Muster brings itself.",
    )  # fmt: skip
    pack_id: int | None
    release = models.ForeignKey(
        Release, null=True, blank=True, on_delete=models.PROTECT, related_name="+",
        help_text="What it runs; empty for polls, and if its code is read from its pack's path.",
    )  # fmt: skip
    release_id: int | None
    trigger = models.OneToOneField(
        Trigger, null=True, blank=True, on_delete=models.CASCADE, related_name="sensor",
        help_text="Of a poll: its trigger.",
    )  # fmt: skip
    trigger_id: int | None
    description = models.TextField(blank=True)
    runtime = models.CharField(max_length=60)
    entry_point = models.JSONField(
        default=list, blank=True,
        help_text="python: `package.module:Class`; others: the list of arguments.",
    )  # fmt: skip
    options = models.JSONField(
        default=dict, blank=True,
        help_text="`env`, `interpreter`, `parameters`, `limits`, `alive_seconds`.",
    )  # fmt: skip
    trigger_types = models.JSONField(
        default=list, blank=True, help_text="The types whose events it may report."
    )
    keys = models.JSONField(default=list, blank=True, help_text="References of the keys it gets.")
    labels = models.JSONField(
        default=dict, blank=True, help_text="Labels that its service must have."
    )
    digest = models.CharField(max_length=64, blank=True, help_text="SHA-256 of its definition.")
    updated_at = models.DateTimeField()

    objects: ClassVar[SensorQuerySet] = SensorQuerySet.as_manager()  # type: ignore[assignment]

    if TYPE_CHECKING:
        assignment: Assignment


class ServiceQuerySet(models.QuerySet["SensorService"]):
    def alive(self, now: datetime, lease_seconds: float) -> ServiceQuerySet:
        """Has renewed its leases within one lease, and has not stopped."""
        since = now - timedelta(seconds=lease_seconds)
        return self.filter(stopped_at__isnull=True, heartbeat_at__gte=since)


class SensorService(models.Model):
    """One life of a sensor service."""

    id = models.UUIDField(primary_key=True, default=uuid_utils.uuid7, editable=False)
    name = models.CharField(max_length=100)
    host = models.CharField(max_length=200, blank=True)
    labels = models.JSONField(default=dict, blank=True)
    started_at = models.DateTimeField()
    heartbeat_at = models.DateTimeField()
    stopped_at = models.DateTimeField(null=True, blank=True)

    objects: ClassVar[ServiceQuerySet] = ServiceQuerySet.as_manager()  # type: ignore[assignment]

    class Meta:
        ordering = ["name", "pk"]

    def __str__(self) -> str:
        return self.name


class AssignmentQuerySet(MachineQuerySet["Assignment"]):
    def held(self) -> AssignmentQuerySet:
        """A service has the lease."""
        return self.filter(state__in=sorted(HELD))

    def wanted(self) -> AssignmentQuerySet:
        """Is to run somewhere."""
        return self.exclude(state=AssignmentState.UNWANTED)

    def overdue(self, now: datetime, lease_seconds: float) -> AssignmentQuerySet:
        """Its lease has run out, or was given by a clock that was set back since; or its service
        does not end it, although it was asked to."""
        latest = now + timedelta(seconds=2 * lease_seconds)
        asked = now - timedelta(seconds=lease_seconds) - ENDING_GRACE
        does_not_end = Q(state=AssignmentState.ENDING, changed_at__lt=asked)
        is_late = Q(lease_until__lt=now) | Q(lease_until__gt=latest)
        return self.held().filter(is_late | does_not_end)

    def ending(self) -> AssignmentQuerySet:
        """Is to be ended by its service."""
        return self.filter(state=AssignmentState.ENDING)

    def due(self, now: datetime) -> AssignmentQuerySet:
        """May start now; the one that has waited longest first."""
        is_due = Q(next_start_at__isnull=True) | Q(next_start_at__lte=now)
        latest = now + timedelta(minutes=2)  # the clock was set back
        return self.filter(is_due | Q(next_start_at__gt=latest)).order_by("changed_at")

    def with_sensor(self) -> AssignmentQuerySet:
        """Load what a service needs to run it."""
        return self.select_related(
            "sensor__pack", "sensor__release", "sensor__trigger__type", "service"
        )


class Assignment(models.Model):
    """The service that runs a sensor now, and the position that the sensor has reached."""

    State = AssignmentState
    machine = ASSIGNMENTS

    id = models.UUIDField(primary_key=True, default=uuid_utils.uuid7, editable=False)
    sensor = models.OneToOneField(Sensor, on_delete=models.CASCADE, related_name="assignment")
    sensor_id: int
    service = models.ForeignKey(
        SensorService, null=True, blank=True, on_delete=models.PROTECT, related_name="assignments"
    )
    service_id: UUID | None
    state = models.CharField(
        max_length=12,
        choices=[(state.value, state.value) for state in AssignmentState],
        default=AssignmentState.VACANT,
    )
    fence = models.PositiveIntegerField(
        default=0,
        help_text="Raised with every change of hands: what comes with an old one is late.",
    )
    changed_at = models.DateTimeField()
    lease_until = models.DateTimeField(null=True, blank=True)
    next_start_at = models.DateTimeField(null=True, blank=True)
    cursor = models.JSONField(
        default=dict, blank=True, help_text="How far it has come; written with its events."
    )
    failures = models.PositiveIntegerField(default=0, help_text="In a row.")
    failed_at = models.JSONField(default=list, blank=True, help_text="Its latest failures.")
    problem = models.CharField(max_length=200, blank=True, help_text="Why it ended last.")
    restarts = models.PositiveIntegerField(default=0)
    events = models.PositiveBigIntegerField(default=0, help_text="How many it has reported.")
    refused = models.PositiveBigIntegerField(default=0, help_text="How many lines were refused.")
    last_event_at = models.DateTimeField(null=True, blank=True)

    objects: ClassVar[AssignmentQuerySet] = AssignmentQuerySet.as_manager()  # type: ignore[assignment]

    if TYPE_CHECKING:
        history: RelatedManager[AssignmentEvent]

    class Meta:
        ordering = ["pk"]
        indexes = [
            models.Index(
                "lease_until",
                name="assignment_lease",
                condition=Q(lease_until__isnull=False),
            ),
        ]
        constraints = [
            models.CheckConstraint(
                name="assignment_state_is_known",
                condition=Q(state__in=[state.value for state in AssignmentState]),
            ),
            models.CheckConstraint(
                name="assignment_is_held_if_and_only_if_a_service_has_the_lease",
                condition=Q(
                    state__in=sorted(HELD), service__isnull=False, lease_until__isnull=False
                )
                | (~Q(state__in=sorted(HELD)) & Q(service__isnull=True, lease_until__isnull=True)),
            ),
        ]

    def __str__(self) -> str:
        return f"assignment of {self.sensor}"

    @property
    def place(self) -> Place:
        """The pack of its sensor, for scopes."""
        return self.sensor.place


class AssignmentEvent(models.Model):
    """One transition of an assignment."""

    assignment = models.ForeignKey(Assignment, on_delete=models.CASCADE, related_name="history")
    assignment_id: UUID
    event = models.CharField(max_length=20)
    from_state = models.CharField(max_length=12)
    to_state = models.CharField(max_length=12)
    fence = models.PositiveIntegerField()
    actor = models.CharField(max_length=150)
    reason = models.CharField(max_length=200, blank=True)
    at = models.DateTimeField()

    class Meta:
        ordering = ["pk"]
        indexes = [models.Index("at", name="assignment_event_at")]

    def __str__(self) -> str:
        return f"{self.event} by {self.actor}"


class SensorLog(models.Model):
    """A piece of what a sensor wrote to its standard error; the oldest pieces go."""

    sensor = models.ForeignKey(Sensor, on_delete=models.CASCADE, related_name="log")
    sensor_id: int
    text = models.TextField()
    at = models.DateTimeField(help_text="Of its first line.")

    class Meta:
        ordering = ["pk"]

    def __str__(self) -> str:
        return f"{self.sensor_id} at {self.at}"
