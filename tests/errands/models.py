"""Kinds of errands, errands, and their history."""

from __future__ import annotations

from uuid import UUID

from django.db import models
from uuid_utils import compat as uuid_utils

from orchestrator.core.models import Execution, Pack
from orchestrator.core.state_machine import MachineQuerySet
from tests.errands.states import ERRANDS, ErrandState


class ErrandKind(models.Model):
    """What a pack says of errands of one name."""

    name = models.CharField(max_length=60, unique=True)
    action_ref = models.CharField(max_length=130)
    pack = models.ForeignKey(Pack, null=True, on_delete=models.PROTECT, related_name="+")

    def __str__(self) -> str:
        return self.name


class ErrandQuerySet(MachineQuerySet["Errand"]):
    def open(self) -> ErrandQuerySet:
        return self.filter(ended_at__isnull=True)


class Errand(models.Model):
    machine = ERRANDS

    id = models.UUIDField(primary_key=True, default=uuid_utils.uuid7, editable=False)
    kind = models.ForeignKey(ErrandKind, on_delete=models.PROTECT, related_name="+")
    state = models.CharField(max_length=10, default=ErrandState.ASKED.value)
    fence = models.PositiveIntegerField(default=0)
    execution = models.ForeignKey(Execution, null=True, on_delete=models.PROTECT, related_name="+")
    execution_id: UUID | None
    created_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)

    objects = ErrandQuerySet.as_manager()

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"errand {self.pk}"


class ErrandEvent(models.Model):
    errand = models.ForeignKey(Errand, on_delete=models.PROTECT, related_name="history")
    event = models.CharField(max_length=20)
    from_state = models.CharField(max_length=10)
    to_state = models.CharField(max_length=10)
    fence = models.PositiveIntegerField()
    actor = models.CharField(max_length=150)
    reason = models.CharField(max_length=200, blank=True)
    at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.event} of {self.errand_id}"
