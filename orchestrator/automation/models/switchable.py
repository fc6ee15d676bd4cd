"""The common part of rules and sensors: a name in a pack, and that they can be switched off."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from orchestrator.automation.models.triggers import REF
from orchestrator.core.authority import Place
from orchestrator.core.frame import PACKS


class Switchable(models.Model):
    """A part of a pack that is enabled or not. Referred to as `pack.name`."""

    ref = models.CharField(max_length=130, unique=True, help_text="`pack.name`")
    enabled_by_pack = models.BooleanField(default=True, help_text="As its definition says.")
    enabled_override = models.BooleanField(
        null=True, blank=True, help_text="As an operator said; outlives upgrades."
    )
    retired_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        abstract = True
        ordering = ["ref"]
        constraints = [
            models.CheckConstraint(
                name="%(class)s_ref_is_pack_dot_name", condition=Q(ref__regex=REF)
            ),
        ]

    def __str__(self) -> str:
        return self.ref

    @property
    def place(self) -> Place:
        """Its pack, for scopes."""
        return Place.of_ref(PACKS, self.ref)

    @property
    def is_enabled(self) -> bool:
        """Return True if it is in use, and an operator, or else its pack, says that it is
        enabled."""
        if self.retired_at is not None:
            return False
        override: bool | None = self.enabled_override
        return self.enabled_by_pack if override is None else override
