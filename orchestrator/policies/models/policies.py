"""Policies: limits of how much starts, and of what."""

from __future__ import annotations

from datetime import timedelta
from typing import ClassVar
from zoneinfo import ZoneInfo

from django.db import models
from django.db.models import Q

from orchestrator.core import authority
from orchestrator.core.authority import WHOLE, Place, Principal
from orchestrator.core.models import Pack
from orchestrator.policies.gcra import Rate
from orchestrator.policies.periods import Period

REF = r"^[a-z0-9_-]{1,60}(\.[a-z0-9_-]{1,60})?$"
KEYS_MAX = 5
TARGET_MAX = 150


class PolicyQuerySet(models.QuerySet["Policy"]):
    def visible_to(self, principal: Principal, permission: str = "policies.read") -> PolicyQuerySet:
        """All of them, or none: one may concern work of any pack, so no scope covers one."""
        return self if authority.reach(principal, permission).is_everywhere else self.none()

    def in_use(self) -> PolicyQuerySet:
        """Not removed."""
        return self.filter(retired_at__isnull=True)

    def in_force(self) -> PolicyQuerySet:
        """Limits what starts."""
        return self.in_use().filter(enabled=True)


class Policy(models.Model):
    """A limit of what starts: at once, in a window of time, or in a period of the calendar."""

    class Kind(models.TextChoices):
        CONCURRENCY = "concurrency"
        RATE = "rate"
        QUOTA = "quota"

    class Scope(models.TextChoices):
        GLOBAL = "global"
        PACK = "pack"
        ACTION = "action"
        IDENTITY = "identity"
        RULE = "rule"

    class OnExceed(models.TextChoices):
        WAIT = "wait"
        REJECT = "reject"

    pack = models.ForeignKey(
        Pack, null=True, blank=True, on_delete=models.PROTECT, related_name="+",
        help_text="The pack that defines it; empty if somebody made it.",
    )  # fmt: skip
    pack_id: int | None
    ref = models.CharField(
        max_length=121, unique=True, help_text="`pack.name`, or a name without a pack."
    )
    description = models.TextField(blank=True)
    kind = models.CharField(max_length=11, choices=Kind.choices)
    scope = models.CharField(max_length=8, choices=Scope.choices)
    target = models.CharField(
        max_length=TARGET_MAX, blank=True,
        help_text="The pack, the action, the requester or the rule; empty for all there is.",
    )  # fmt: skip
    limit = models.PositiveIntegerField()
    window_seconds = models.FloatField(null=True, blank=True, help_text="Of a rate.")
    period = models.CharField(
        max_length=5, blank=True, choices=[(each.value, each.value) for each in Period],
        help_text="Of a quota.",
    )  # fmt: skip
    timezone = models.CharField(max_length=64, default="UTC", help_text="Of a quota's period.")
    keyed_by = models.JSONField(
        default=list, blank=True,
        help_text="JSON pointers to parameters: each combination of their values has the limit.",
    )  # fmt: skip
    on_exceed = models.CharField(max_length=6, choices=OnExceed.choices, default=OnExceed.WAIT)
    enabled = models.BooleanField(default=True)
    retired_at = models.DateTimeField(
        null=True, blank=True, help_text="Since when it is removed. Its name can be used again."
    )
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()

    objects: ClassVar[PolicyQuerySet] = PolicyQuerySet.as_manager()  # type: ignore[assignment]

    class Meta:
        ordering = ["ref"]
        verbose_name_plural = "policies"
        constraints = [
            models.CheckConstraint(name="policy_ref_is_plain", condition=Q(ref__regex=REF)),
            models.CheckConstraint(name="policy_limit_is_positive", condition=Q(limit__gte=1)),
            models.CheckConstraint(
                name="policy_has_window_if_and_only_if_rate",
                condition=Q(kind="rate", window_seconds__isnull=False, window_seconds__gt=0)
                | (~Q(kind="rate") & Q(window_seconds__isnull=True)),
            ),
            models.CheckConstraint(
                name="policy_has_period_if_and_only_if_quota",
                condition=(Q(kind="quota") & ~Q(period="")) | (~Q(kind="quota") & Q(period="")),
            ),
            models.CheckConstraint(
                name="policy_has_target_unless_global",
                condition=Q(scope="global", target="") | (~Q(scope="global") & ~Q(target="")),
            ),
        ]

    def __str__(self) -> str:
        return self.ref

    @property
    def place(self) -> Place:
        """The whole installation, for scopes."""
        return WHOLE

    @property
    def is_in_force(self) -> bool:
        return self.enabled and self.retired_at is None

    @property
    def state(self) -> str:
        """`enabled`, `disabled` or `removed`."""
        if self.retired_at is not None:
            return "removed"
        return "enabled" if self.enabled else "disabled"

    @property
    def rate(self) -> Rate:
        assert self.window_seconds is not None
        return Rate(self.limit, timedelta(seconds=self.window_seconds))

    @property
    def zone(self) -> ZoneInfo:
        return ZoneInfo(self.timezone)

    @property
    def text(self) -> str:
        """The limit in words: `at most 3 at once`."""
        if self.kind == Policy.Kind.CONCURRENCY:
            return f"at most {self.limit} at once"
        if self.kind == Policy.Kind.RATE:
            return f"at most {self.limit} in {self.window_seconds:g} s"
        return (
            f"at most {self.limit} in {'an' if self.period == Period.HOUR else 'a'} {self.period}"
        )
