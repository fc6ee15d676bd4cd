"""Events: what happened, as it was reported."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import ClassVar

from django.db import models
from django.db.models import Q
from uuid_utils import compat as uuid_utils

from orchestrator.automation.models.reads import Handled, OfPacks
from orchestrator.automation.models.triggers import INVESTIGATION, Trigger
from orchestrator.core.authority import WHOLE, Place
from orchestrator.core.frame import PACKS
from orchestrator.core.models.maintenance import PROCESSES_DIFFER_BY

DEEPEST = 11
"""An event of this depth asks no rule: ten rules in a row have answered what they caused."""
TOO_DEEP = "too_deep"


class EventQuerySet(OfPacks["Event"], Handled["Event"]):  # type: ignore[override] # as_manager
    ref = "type_ref"
    read_by = "events.read"

    def unevaluated(self) -> EventQuerySet:
        """No rule was asked yet."""
        return self.filter(evaluated_at__isnull=True)

    def overlooked(self, now: datetime, grace: timedelta) -> EventQuerySet:
        """Not evaluated, and received at least this long ago, or by a clock that was set back
        since; the oldest first."""
        latest = now + PROCESSES_DIFFER_BY
        long_ago = Q(received_at__lte=now - grace) | Q(received_at__gt=latest)
        return self.unevaluated().filter(long_ago).order_by("received_at", "id")


SOURCES = ("api", "command", "execution", "hook", "investigation", "replay", "sensor", "timer")


class Event(models.Model):
    """One occurrence of what a trigger stands for. The database lets nobody change it once the
    rules were asked."""

    id = models.UUIDField(primary_key=True, default=uuid_utils.uuid7, editable=False)
    trigger = models.ForeignKey(
        Trigger, on_delete=models.PROTECT, related_name="events", db_index=False
    )
    trigger_id: int
    type_ref = models.CharField(max_length=130, help_text="The type of its trigger.")
    dedup_key = models.CharField(  # noqa: DJ001 - NULL is unique
        max_length=200, null=True, blank=True,
        help_text="Reports of the trigger with the same key are the same event.",
    )  # fmt: skip
    payload = models.JSONField(default=dict)
    occurred_at = models.DateTimeField(
        null=True, blank=True, help_text="As it was reported; nothing depends on it."
    )
    received_at = models.DateTimeField()
    evaluated_at = models.DateTimeField(null=True, blank=True)
    matched = models.PositiveSmallIntegerField(
        null=True, blank=True, help_text="How many rules matched."
    )
    problem = models.CharField(
        max_length=200, blank=True, help_text="Why no rule was asked, if so."
    )
    source = models.CharField(
        max_length=60, help_text="What reported it, such as `api`, `hook` or `timer`."
    )
    sent_by = models.CharField(max_length=150, blank=True)
    correlation_id = models.CharField(max_length=100, null=True, blank=True)  # noqa: DJ001 - not indexed
    depth = models.PositiveSmallIntegerField(
        default=0, help_text="How many rules have led from the first cause to it."
    )
    cause_execution_id = models.UUIDField(
        null=True, blank=True, help_text="The execution that it is about; that may be gone."
    )
    only_rule = models.ForeignKey(
        "Rule", null=True, blank=True, on_delete=models.SET_NULL, related_name="+", db_index=False,
        help_text="Of a replay: no other rule is asked.",
    )  # fmt: skip
    only_rule_id: int | None

    objects: ClassVar[EventQuerySet] = EventQuerySet.as_manager()  # type: ignore[assignment]

    class Meta:
        ordering = ["-pk"]
        indexes = [
            # read every second, for events whose message was lost
            models.Index(
                "received_at",
                "id",
                name="event_unevaluated",
                condition=Q(evaluated_at__isnull=True),
            ),
            models.Index("trigger", "id", name="event_by_trigger"),
            models.Index(
                "correlation_id",
                name="event_by_correlation",
                condition=Q(correlation_id__isnull=False),
            ),
        ]
        constraints = [
            models.UniqueConstraint(
                "trigger",
                "dedup_key",
                name="event_key_is_unique_in_trigger",
                condition=Q(dedup_key__isnull=False),
            ),
            models.CheckConstraint(
                name="event_is_evaluated_if_and_only_if_matches_are_counted",
                condition=Q(evaluated_at__isnull=True, matched__isnull=True)
                | Q(evaluated_at__isnull=False, matched__isnull=False),
            ),
            models.CheckConstraint(
                name="event_depth_is_limited", condition=Q(depth__range=(0, DEEPEST))
            ),
        ]

    def __str__(self) -> str:
        return f"{self.type_ref} {self.pk}"

    @property
    def why_not_asked(self) -> str:
        """The reason why no rule was asked, without what `problem` quotes of the payload; empty if
        there is none."""
        if self.problem in ("", TOO_DEEP):
            return self.problem
        is_of_body = self.problem.startswith("/")  # a pointer into it
        return "does not fit the schema" if is_of_body else "a fault of Muster"

    @property
    def place(self) -> Place:
        """The pack of its trigger's type, for scopes. What is investigated may be of any pack."""
        return WHOLE if self.type_ref == INVESTIGATION else Place.of_ref(PACKS, self.type_ref)
