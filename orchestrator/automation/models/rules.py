"""Rules, and the content of each of their revisions."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from django.db import models
from django.db.models import Q

from orchestrator.access.models import Identity
from orchestrator.automation.models.reads import OfPacks
from orchestrator.automation.models.switchable import Switchable
from orchestrator.automation.models.triggers import Trigger
from orchestrator.core.models import Pack

if TYPE_CHECKING:
    from django_stubs_ext.db.models.manager import RelatedManager


class RuleQuerySet(OfPacks["Rule"]):
    read_by = "rules.read"

    def enabled(self) -> RuleQuerySet:
        """Is asked: an operator's word counts before that of its pack."""
        by_pack = Q(enabled_override__isnull=True, enabled_by_pack=True)
        return self.filter(Q(enabled_override=True) | by_pack, retired_at__isnull=True)


class Rule(Switchable):
    """A rule that runs an action when something happens, under conditions. Referred to as
    `pack.name`."""

    pack = models.ForeignKey(
        Pack, null=True, blank=True, on_delete=models.PROTECT, related_name="rules"
    )
    pack_id: int | None
    trigger = models.ForeignKey(
        Trigger, on_delete=models.PROTECT, related_name="rules", db_index=False
    )
    trigger_id: int
    revision = models.ForeignKey(
        "RuleRevision", null=True, on_delete=models.PROTECT, related_name="+", db_index=False,
        help_text="What it says now.",
    )  # fmt: skip
    revision_id: int | None
    owner = models.ForeignKey(
        Identity, null=True, blank=True, on_delete=models.PROTECT, related_name="+",
        help_text="With whose permissions it runs its action; empty is the installation itself.",
    )  # fmt: skip
    owner_id: int | None

    objects: ClassVar[RuleQuerySet] = RuleQuerySet.as_manager()  # type: ignore[assignment]

    if TYPE_CHECKING:
        revisions: RelatedManager[RuleRevision]

    class Meta(Switchable.Meta):
        indexes = [
            models.Index("trigger", name="rule_by_trigger", condition=Q(retired_at__isnull=True)),
        ]

    @property
    def current(self) -> RuleRevision:
        """The content of the rule now."""
        assert self.revision is not None  # only within the transaction that makes it
        return self.revision


class RuleRevision(models.Model):
    """The content of a rule, now or before; the database lets nobody change it."""

    rule = models.ForeignKey(
        Rule, on_delete=models.PROTECT, related_name="revisions", db_index=False
    )
    rule_id: int
    number = models.PositiveIntegerField()
    description = models.TextField(blank=True)
    criteria = models.JSONField(default=dict, blank=True)
    action_ref = models.CharField(max_length=130)
    parameters = models.JSONField(default=dict, blank=True)
    options = models.JSONField(
        default=dict, blank=True,
        help_text="Such as priority, retry, suppress, backstop; see `options.OPTIONS`.",
    )  # fmt: skip
    digest = models.CharField(max_length=64, help_text="SHA-256 of its content.")
    made_by = models.CharField(max_length=150, blank=True)
    made_at = models.DateTimeField()

    class Meta:
        ordering = ["rule", "number"]
        constraints = [
            models.UniqueConstraint("rule", "number", name="rule_revision_is_unique"),
        ]

    def __str__(self) -> str:
        return f"revision {self.number}"
