"""Webhooks: which trigger answers at which path, and what became of deliveries."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar
from uuid import UUID

from django.db import models
from django.db.models import Q
from uuid_utils import compat as uuid_utils

from orchestrator.automation.hooks.deliveries import TAKEN
from orchestrator.automation.models.triggers import Trigger
from orchestrator.core import authority
from orchestrator.core.authority import Place, Principal
from orchestrator.core.models.prepared import Prepared

if TYPE_CHECKING:
    from django_stubs_ext.db.models.manager import RelatedManager


class WebhookQuerySet(models.QuerySet["Webhook"]):
    def visible_to(
        self, principal: Principal, permission: str = "triggers.read"
    ) -> WebhookQuerySet:
        """Those whose trigger's type the caller has a permission for."""
        if authority.reach(principal, permission).is_everywhere:
            return self
        return self.filter(trigger__in=Trigger.objects.visible_to(principal, permission))

    def at(self, path: str) -> Webhook | None:
        """The hook at this path, with its trigger and the type of that."""
        return next(iter(_at(path)), None)


class Webhook(models.Model):
    """A path, and the trigger whose events its deliveries are. Every API process reads it here."""

    id = models.UUIDField(primary_key=True, default=uuid_utils.uuid7, editable=False)
    path = models.CharField(max_length=100, unique=True, help_text="What follows /api/v1/hooks/.")
    trigger = models.OneToOneField(Trigger, on_delete=models.CASCADE, related_name="webhook")
    trigger_id: int

    objects: ClassVar[WebhookQuerySet] = WebhookQuerySet.as_manager()  # type: ignore[assignment]

    if TYPE_CHECKING:
        deliveries: RelatedManager[DeliveryCount]

    class Meta:
        ordering = ["path"]
        constraints = [
            models.CheckConstraint(
                name="webhook_path_is_plain", condition=Q(path__regex=r"^[a-z0-9][a-z0-9._/-]*$")
            ),
        ]

    def __str__(self) -> str:
        return self.path

    @property
    def place(self) -> Place:
        """The pack of its trigger's type, for scopes."""
        return self.trigger.place


_at = Prepared(
    lambda path: Webhook.objects.filter(path=path).select_related("trigger__type"), "any-path"
)
"""Each delivery begins with it, those of strangers, too."""


class DeliveryCountQuerySet(models.QuerySet["DeliveryCount"]):
    def refused(self) -> DeliveryCountQuerySet:
        """Of deliveries that were not taken, the last ones first."""
        return self.exclude(outcome__in=[each.value for each in TAKEN]).order_by("-last_at")


class DeliveryCount(models.Model):
    """The number of deliveries of a hook that had one outcome, and the last time: as many rows as
    there are outcomes, however many deliveries a stranger sends."""

    webhook = models.ForeignKey(
        Webhook, on_delete=models.CASCADE, related_name="deliveries", db_index=False
    )
    webhook_id: UUID
    outcome = models.CharField(max_length=20, help_text="See `hooks.deliveries.Outcome`.")
    total = models.BigIntegerField(default=0)
    last_at = models.DateTimeField()
    last_detail = models.CharField(max_length=200, blank=True)
    last_address = models.CharField(max_length=45, blank=True)

    objects: ClassVar[DeliveryCountQuerySet] = DeliveryCountQuerySet.as_manager()  # type: ignore[assignment]

    class Meta:
        ordering = ["outcome"]
        constraints = [
            models.UniqueConstraint("webhook", "outcome", name="delivery_count_is_one_number"),
        ]

    def __str__(self) -> str:
        return f"{self.webhook_id} {self.outcome} {self.total}"
