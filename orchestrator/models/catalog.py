"""What can be run: packs and their actions."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import TYPE_CHECKING

from django.db import models
from django.db.models import Q
from django.db.models.signals import post_delete, post_save

if TYPE_CHECKING:
    from django_stubs_ext.db.models.manager import RelatedManager


class Pack(models.Model):
    """A folder of actions that is installed, and upgraded, as one."""

    name = models.CharField(max_length=60, unique=True)
    version = models.CharField(max_length=40)
    description = models.TextField(blank=True)
    path = models.CharField(max_length=500, help_text="The folder it was installed from.")
    installed_at = models.DateTimeField()

    if TYPE_CHECKING:
        actions: RelatedManager[Action]

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


KNOWN_FOR_SECONDS = 5.0


class ActionQuerySet(models.QuerySet["Action"]):
    def known(self, ids: Collection[int]) -> dict[int, Action]:
        """These actions with their packs, as they were at most five seconds ago.

        Every execution of a batch needs its action, which is nearly always one of the same few:
        reading them anew with each row took a third of the executor's time. Who upgrades a pack
        sees its actions change within these seconds.
        """
        now = time.monotonic()
        known: dict[int, Action] = {
            id: entry[1]
            for id in ids
            if (entry := _known.get(id)) and now - entry[0] < KNOWN_FOR_SECONDS
        }
        if len(known) < len(ids):
            read = self.select_related("pack").filter(pk__in=ids)
            known = {action.pk: action for action in read}
            _known.update({id: (now, action) for id, action in known.items()})
        return known


_known: dict[int, tuple[float, Action]] = {}


def forget_actions(**_: object) -> None:
    """What this process itself changed it must not remember."""
    _known.clear()


class Action(models.Model):
    """Something that can be run, referred to as `pack.name`."""

    class OnNoWorker(models.TextChoices):
        FAIL = "fail"
        WAIT = "wait"

    pack = models.ForeignKey(Pack, on_delete=models.PROTECT, related_name="actions")
    ref = models.CharField(max_length=130, unique=True, help_text="`pack.name`")
    description = models.TextField(blank=True)
    runtime = models.CharField(max_length=60)
    entry_point = models.JSONField(
        help_text="python: `package.module:function`; http: a URL; others: the list of arguments."
    )
    runtime_options = models.JSONField(
        default=dict, blank=True, help_text="See `orchestrator.packs.runtimes`."
    )
    limits = models.JSONField(
        default=dict, blank=True, help_text="What its processes may use at most."
    )
    parameters_schema = models.JSONField(default=dict, blank=True, help_text="JSON Schema.")
    timeout_seconds = models.FloatField(null=True, blank=True)
    queue_ttl_ms = models.PositiveIntegerField(
        null=True, blank=True, help_text="Shorter than the worker queue's TTL, or empty."
    )
    scheduled_timeout_seconds = models.FloatField(
        null=True, blank=True, help_text="Longest wait from its dispatch to its start, or empty."
    )
    worker_selector = models.JSONField(
        default=dict, blank=True, help_text="Labels that its worker must have, each as it is here."
    )
    retry_policy = models.JSONField(
        default=dict, blank=True, help_text="See `orchestrator.retry_policy`."
    )
    idempotent = models.BooleanField(
        default=False, help_text="Running it twice does no harm: an unknown outcome may be retried."
    )
    on_no_worker = models.CharField(
        max_length=4, choices=OnNoWorker.choices, default=OnNoWorker.FAIL
    )
    enabled = models.BooleanField(default=True)
    updated_at = models.DateTimeField()

    objects = ActionQuerySet.as_manager()

    class Meta:
        ordering = ["ref"]
        constraints = [
            models.CheckConstraint(
                name="action_ref_is_pack_dot_name",
                condition=Q(ref__regex=r"^[a-z0-9_-]+\.[a-z0-9_.-]+$"),
            ),
            models.CheckConstraint(
                name="action_timeout_is_positive",
                condition=Q(timeout_seconds__isnull=True) | Q(timeout_seconds__gt=0),
            ),
        ]

    def __str__(self) -> str:
        return self.ref


post_save.connect(forget_actions, sender=Action)
post_delete.connect(forget_actions, sender=Action)
