"""The things that may happen: types of triggers, triggers, and the timers among them."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, ClassVar

from django.db import models
from django.db.models import Q

from orchestrator.automation.models.reads import OfPacks
from orchestrator.core.authority import Place
from orchestrator.core.frame import PACKS
from orchestrator.core.models import Pack

if TYPE_CHECKING:
    from django_stubs_ext.db.models.manager import RelatedManager

INVESTIGATION = "core.investigation"
"""A type of Muster's own, whose events may be about anything that an app brings."""

REF = r"^[a-z0-9_-]+\.[a-z0-9_.-]+$"
"""`pack.name`, as of an action."""


class TriggerTypeQuerySet(OfPacks["TriggerType"]):
    read_by = "triggers.read"


class TriggerType(models.Model):
    """A kind of thing that happens, referred to as `pack.name`."""

    pack = models.ForeignKey(
        Pack, null=True, blank=True, on_delete=models.PROTECT, related_name="trigger_types",
        help_text="Empty for those that Muster brings itself.",
    )  # fmt: skip
    ref = models.CharField(max_length=130, unique=True, help_text="`pack.name`")
    description = models.TextField(blank=True)
    parameters_schema = models.JSONField(default=dict, blank=True, help_text="JSON Schema.")
    payload_schema = models.JSONField(default=dict, blank=True, help_text="JSON Schema.")
    retired_at = models.DateTimeField(
        null=True, blank=True, help_text="Since when it is no longer in its pack: takes no events."
    )
    updated_at = models.DateTimeField()

    objects = TriggerTypeQuerySet.as_manager()

    class Meta:
        ordering = ["ref"]
        constraints = [
            models.CheckConstraint(
                name="trigger_type_ref_is_pack_dot_name", condition=Q(ref__regex=REF)
            ),
        ]

    def __str__(self) -> str:
        return self.ref

    @property
    def place(self) -> Place:
        """Its pack, for scopes."""
        return Place.of_ref(PACKS, self.ref)


class TriggerQuerySet(OfPacks["Trigger"]):
    ref = "type__ref"
    read_by = "triggers.read"


class Trigger(models.Model):
    """A type with parameters, such as `core.cron` with `0 5 * * *`. Equal parameters are the same
    trigger."""

    type = models.ForeignKey(TriggerType, on_delete=models.PROTECT, related_name="triggers")
    type_id: int
    parameters = models.JSONField(default=dict, blank=True)
    digest = models.CharField(max_length=64, help_text="SHA-256 of its parameters.")
    created_at = models.DateTimeField()

    objects = TriggerQuerySet.as_manager()

    if TYPE_CHECKING:
        timer: Timer
        rules: RelatedManager[models.Model]

    class Meta:
        ordering = ["pk"]
        constraints = [
            models.UniqueConstraint("type", "digest", name="trigger_parameters_are_unique"),
        ]

    def __str__(self) -> str:
        return f"{self.type} #{self.pk}"

    @property
    def place(self) -> Place:
        """The pack of its type, for scopes."""
        return self.type.place


class TimerQuerySet(models.QuerySet["Timer"]):
    def due(self, now: datetime) -> TimerQuerySet:
        """Is to fire by now, the longest overdue first."""
        return self.filter(next_fire_at__lte=now).order_by("next_fire_at")

    def locked(self, limit: int) -> TimerQuerySet:
        """Lock the first `limit` rows, except those that another session holds. SQLite has one
        writer at a time, and locks nothing here."""
        return self.select_for_update(skip_locked=True, of=("self",), no_key=True)[:limit]


class Timer(models.Model):
    """The time at which a trigger of a timer's type fires next."""

    trigger = models.OneToOneField(
        Trigger, on_delete=models.CASCADE, primary_key=True, related_name="timer"
    )
    trigger_id: int
    next_fire_at = models.DateTimeField(
        null=True, blank=True, help_text="Empty while no enabled rule waits for it, and at its end."
    )
    last_fired_at = models.DateTimeField(
        null=True, blank=True, help_text="The time that was last due, or since when rules wait."
    )

    objects: ClassVar[TimerQuerySet] = TimerQuerySet.as_manager()  # type: ignore[assignment]

    class Meta:
        indexes = [
            models.Index("next_fire_at", name="timer_due", condition=Q(next_fire_at__isnull=False)),
        ]

    def __str__(self) -> str:
        return f"timer of {self.trigger_id}"
