"""Enforcements: the answers of rules to events."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import ClassVar
from uuid import UUID

from django.db import models
from django.db.models import Q
from uuid_utils import compat as uuid_utils

from orchestrator.automation.models.events import Event
from orchestrator.automation.models.reads import Handled
from orchestrator.automation.models.rules import Rule, RuleRevision
from orchestrator.automation.states import ENFORCEMENTS, EnforcementState
from orchestrator.core import authority
from orchestrator.core.authority import Place, Principal
from orchestrator.core.models.executions import Execution
from orchestrator.core.models.maintenance import PROCESSES_DIFFER_BY
from orchestrator.core.state_machine import MachineQuerySet


class EnforcementQuerySet(  # type: ignore[override] # as_manager
    Handled["Enforcement"], MachineQuerySet["Enforcement"]
):
    def visible_to(
        self, principal: Principal, permission: str = "rules.read"
    ) -> EnforcementQuerySet:
        """Those of rules for which the caller has a permission."""
        if authority.reach(principal, permission).is_everywhere:
            return self
        return self.filter(rule__in=Rule.objects.visible_to(principal, permission))

    def open(self) -> EnforcementQuerySet:
        """Has neither an execution nor a reason for none."""
        return self.filter(ended_at__isnull=True)

    def overlooked(self, now: datetime, grace: timedelta) -> EnforcementQuerySet:
        """Still open, and created at least this long ago, or by a clock that was set back since;
        the oldest first."""
        latest = now + PROCESSES_DIFFER_BY
        long_ago = Q(created_at__lte=now - grace) | Q(created_at__gt=latest)
        return self.open().filter(long_ago).order_by("pk")


class Enforcement(models.Model):
    """One rule's answer to one event: an execution, or the reason why there is none."""

    State = EnforcementState
    machine = ENFORCEMENTS

    id = models.UUIDField(primary_key=True, default=uuid_utils.uuid7, editable=False)
    rule = models.ForeignKey(
        Rule, on_delete=models.PROTECT, related_name="enforcements", db_index=False
    )
    rule_id: int
    revision = models.ForeignKey(
        RuleRevision, on_delete=models.PROTECT, related_name="+", db_index=False
    )
    revision_id: int
    event = models.ForeignKey(Event, on_delete=models.PROTECT, related_name="enforcements")
    event_id: UUID
    state = models.CharField(
        max_length=10,
        choices=[(state.value, state.value) for state in EnforcementState],
        default=EnforcementState.CREATED,
    )
    fence = models.PositiveIntegerField(default=0)
    # without a constraint of the database: it outlives its execution
    execution = models.ForeignKey(
        Execution, null=True, blank=True, on_delete=models.DO_NOTHING, related_name="+",
        db_constraint=False, db_index=False,
    )  # fmt: skip
    execution_id: UUID | None
    reason = models.CharField(max_length=40, blank=True, help_text="Why there is no execution.")
    problem = models.JSONField(null=True, blank=True, help_text="What exactly was refused.")
    created_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)

    objects: ClassVar[EnforcementQuerySet] = EnforcementQuerySet.as_manager()  # type: ignore[assignment]

    class Meta:
        ordering = ["-pk"]
        indexes = [
            models.Index("id", name="enforcement_open", condition=Q(ended_at__isnull=True)),
            models.Index("rule", "id", name="enforcement_by_rule"),
        ]
        constraints = [
            models.UniqueConstraint(
                "rule", "event", name="enforcement_of_rule_and_event_is_unique"
            ),
            models.UniqueConstraint(
                "execution",
                name="enforcement_has_execution_of_its_own",
                condition=Q(execution__isnull=False),
            ),
            models.CheckConstraint(
                name="enforcement_state_is_known",
                condition=Q(state__in=[state.value for state in EnforcementState]),
            ),
            models.CheckConstraint(
                name="enforcement_is_ended_if_and_only_if_its_state_is",
                condition=Q(ended_at__isnull=False, state__in=sorted(ENFORCEMENTS.ended))
                | Q(ended_at__isnull=True, state="created"),
            ),
            models.CheckConstraint(
                name="enforcement_is_executed_if_and_only_if_it_has_an_execution",
                condition=Q(execution__isnull=False, state="executed")
                | (Q(execution__isnull=True) & ~Q(state="executed")),
            ),
            models.CheckConstraint(
                name="enforcement_that_is_rejected_has_a_reason",
                condition=~Q(state="rejected") | ~Q(reason=""),
            ),
        ]

    def __str__(self) -> str:
        return f"enforcement {self.pk}"

    @property
    def place(self) -> Place:
        """The pack of its rule, for scopes."""
        return self.rule.place


class Suppression(models.Model):
    """Until when a rule does not answer the same again."""

    rule = models.ForeignKey(Rule, on_delete=models.CASCADE, related_name="+", db_index=False)
    rule_id: int
    key_hash = models.CharField(max_length=64, help_text="SHA-256 of what counts as the same.")
    until = models.DateTimeField(null=True, blank=True)
    hits = models.PositiveIntegerField(default=0, help_text="How many answers it suppressed.")

    class Meta:
        constraints = [
            models.UniqueConstraint("rule", "key_hash", name="suppression_is_unique"),
        ]

    def __str__(self) -> str:
        return f"{self.rule_id} until {self.until}"
