"""Numbers by span of time, causes of failures, and how far the history is read for them."""

from __future__ import annotations

from typing import ClassVar, Self

from django.db import models

from orchestrator.core import authority
from orchestrator.core.authority import Place, Principal
from orchestrator.core.frame import PACKS
from orchestrator.core.models import Action

MINUTE, QUARTER, HOUR = SPANS = (1, 15, 60)
"""Minutes of the spans that are summed."""

PATTERN_MAX = 300
DIGEST = 64


class Mark(models.Model):
    """The position up to which the history of executions is read, for one purpose: see `marks`."""

    name = models.CharField(max_length=20, primary_key=True)
    read_to = models.BigIntegerField(help_text="Events up to this id are read.")
    read_until = models.DateTimeField(null=True, help_text="What was written before this is read.")
    seen_to = models.BigIntegerField(help_text="The last id when somebody last looked.")
    seen_before = models.BigIntegerField(
        default=0, help_text="Its events are of transactions with smaller numbers."
    )
    seen_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"{self.name} up to {self.read_to}"

    @property
    def is_reached(self) -> bool:
        """True if nothing that was seen is left to be read."""
        return self.read_to >= self.seen_to


class OfActionsQuerySet(models.QuerySet[models.Model]):
    """Rows about executions of one action each."""

    def visible_to(self, principal: Principal, permission: str = "executions.read") -> Self:
        """About actions of packs for which the caller has a permission."""
        if authority.reach(principal, permission).is_everywhere:
            return self
        refs = Action.objects.visible_to(principal, permission).values_list("ref", flat=True)
        return self.filter(action_ref__in=list(refs))


class Span(models.Model):
    """A sum of one span of time, of one action and one status."""

    minutes = models.SmallIntegerField(help_text="The length of the span.")
    start = models.DateTimeField()
    action_ref = models.CharField(max_length=130)
    to_status = models.CharField(max_length=10)
    count = models.PositiveBigIntegerField()

    objects: ClassVar[OfActionsQuerySet] = OfActionsQuerySet.as_manager()  # type: ignore[assignment]

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return f"{self.count} {self.to_status} within {self.minutes} min of {self.start:%F %R}"


class Arrivals(Span):
    """The number of executions that came into a status, for the same reason."""

    reason = models.CharField(max_length=40, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                "minutes", "start", "action_ref", "to_status", "reason", name="arrivals_are_one_sum"
            ),
        ]


class Durations(Span):
    """The time that it took them, in one bucket: to `running` from the acceptance on, to an end
    from the claim of the attempt on."""

    bucket = models.SmallIntegerField(help_text="Its number, see `minutes.BOUNDS`.")
    seconds = models.FloatField(help_text="Their sum.")

    class Meta:
        constraints = [
            models.UniqueConstraint(
                "minutes",
                "start",
                "action_ref",
                "to_status",
                "bucket",
                name="durations_are_one_sum",
            ),
        ]


class FailureGroup(models.Model):
    """A cause: executions of one action that failed for one reason, with messages of one pattern.

    The pattern is kept, and no message: see `patterns`.
    """

    digest = models.CharField(max_length=DIGEST, unique=True)
    action_ref = models.CharField(max_length=130)
    reason = models.CharField(max_length=40)
    sample = models.CharField(max_length=PATTERN_MAX, blank=True)
    first = models.DateTimeField()
    last = models.DateTimeField()
    count = models.PositiveBigIntegerField(help_text="Since the first one.")

    objects: ClassVar[OfActionsQuerySet] = OfActionsQuerySet.as_manager()  # type: ignore[assignment]

    id: int

    class Meta:
        indexes = [
            models.Index("last", name="failure_group_by_last"),
            models.Index("action_ref", "reason", name="failure_group_by_action"),
        ]

    def __str__(self) -> str:
        return f"{self.action_ref}: {self.sample or self.reason}"

    @property
    def place(self) -> Place:
        """The pack of its action, for scopes."""
        return Place.of_ref(PACKS, self.action_ref)


class FailureCount(models.Model):
    """The number of times that a cause occurred within a quarter of an hour."""

    group = models.ForeignKey(
        FailureGroup, on_delete=models.CASCADE, related_name="counts", db_index=False
    )
    start = models.DateTimeField()
    count = models.PositiveBigIntegerField()

    group_id: int

    class Meta:
        constraints = [
            models.UniqueConstraint("start", "group", name="failure_count_is_one_sum"),
        ]
        indexes = [models.Index("group", "start", name="failure_count_by_group")]

    def __str__(self) -> str:
        return f"{self.count} within 15 min of {self.start:%F %R}"


class Failure(models.Model):
    """An execution that failed of a cause. It may be gone."""

    execution_id = models.UUIDField(primary_key=True)
    group = models.ForeignKey(
        FailureGroup, on_delete=models.CASCADE, related_name="failures", db_index=False
    )
    worker_id = models.BigIntegerField(null=True, help_text="The worker of its last attempt.")
    at = models.DateTimeField()

    group_id: int

    class Meta:
        indexes = [
            models.Index("group", "execution_id", name="failure_of_group"),
            models.Index("at", name="failure_by_time"),
        ]

    def __str__(self) -> str:
        return str(self.execution_id)
