"""The catalog of what can be run: packs and their actions."""

from __future__ import annotations

import copy
import time
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.conf import settings
from django.db import models
from django.db.models import Q
from django.db.models.signals import post_delete, post_save

from orchestrator.core import authority
from orchestrator.core import isolation as levels
from orchestrator.core.authority import Place, Principal
from orchestrator.core.frame import PACKS
from orchestrator.core.models.prepared import PreparedForIds

if TYPE_CHECKING:
    from django_stubs_ext.db.models.manager import RelatedManager


class PackQuerySet(models.QuerySet["Pack"]):
    def visible_to(self, principal: Principal, permission: str = "actions.read") -> PackQuerySet:
        """The packs for which the caller has a permission."""
        reach = authority.reach(principal, permission)
        return self if reach.is_everywhere else self.filter(reach.condition(PACKS, "name"))

    def installed(self) -> PackQuerySet:
        return self.filter(removed_at__isnull=True)


class Pack(models.Model):
    """A folder of actions that is installed and upgraded as a unit."""

    name = models.CharField(max_length=60, unique=True)
    version = models.CharField(max_length=40)
    description = models.TextField(blank=True)
    path = models.CharField(
        max_length=500,
        blank=True,
        help_text="The folder it was installed from; of a pack without a release, its code.",
    )
    release = models.ForeignKey(
        "orchestrator.Release",
        null=True,
        blank=True,
        on_delete=models.PROTECT,
        db_index=False,
        related_name="current_of",
        help_text="What new executions get; empty if workers read the code from its path.",
    )
    release_id: int | None
    installed_at = models.DateTimeField()
    draining_since = models.DateTimeField(
        null=True, blank=True, help_text="Since when it takes no requests, as it is being removed."
    )
    removed_at = models.DateTimeField(
        null=True, blank=True, help_text="Its rows stay, for what refers to them."
    )

    objects = PackQuerySet.as_manager()

    if TYPE_CHECKING:
        actions: RelatedManager[Action]

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return f"{self.name} {self.version}"

    @property
    def place(self) -> Place:
        """Itself, for scopes."""
        return Place(PACKS, self.name)


WITHOUT_CODE = frozenset({"http", "inquiry"})
"""Runtimes that need nothing of a pack's folder."""

KNOWN_FOR_SECONDS = 5.0
KNOWN_BY_REF_FOR_SECONDS = 1.0

MOST_KNOWN = 10_000

AcceptedKey = tuple[int, int | None]
"""The id of an action, and that of the release that an execution has, if any."""


class ActionQuerySet(models.QuerySet["Action"]):
    def visible_to(self, principal: Principal, permission: str = "actions.read") -> ActionQuerySet:
        """The actions for whose packs the caller has a permission."""
        reach = authority.reach(principal, permission)
        return self if reach.is_everywhere else self.filter(reach.condition(PACKS, "pack__name"))

    def known(self, keys: Collection[AcceptedKey]) -> dict[AcceptedKey, Action]:
        """Actions with their packs, by their ids and releases: as the release defines it, or,
        without one, as it was at most five seconds ago. Filters are ignored.

        Every execution of a batch needs its action, nearly always one of the same few: reading it
        with each row took a third of the executor's time.
        """
        now = time.monotonic()
        known = {
            key: entry[1]
            for key in keys
            if (entry := _accepted.get(key)) and now - entry[0] < KNOWN_FOR_SECONDS
        }
        if missing := set(keys) - known.keys():
            live = {action.pk: action for action in _of_ids({id for id, _ in missing})}
            fresh: dict[AcceptedKey, Action] = {
                (id, None): live[id] for id, release in missing if release is None
            }
            fresh |= _as_released(live, {key for key in missing if key[1] is not None})
            if len(_accepted) + len(fresh) > MOST_KNOWN:
                _accepted.clear()
            _accepted.update({key: (now, action) for key, action in fresh.items()})
            known |= fresh
        return known

    def known_by_ref(self, refs: Collection[str]) -> dict[str, Action]:
        """The same for requests, as they were at most a second ago: after an upgrade of a pack, its
        users expect the new parameters to be accepted."""
        now = time.monotonic()
        known = {
            ref: entry[1]
            for ref in refs
            if (entry := _by_ref.get(ref)) and now - entry[0] < KNOWN_BY_REF_FOR_SECONDS
        }
        if missing := set(refs) - known.keys():
            fresh = {each.ref: each for each in _of_refs(missing)}
            _by_ref.update({ref: (now, action) for ref, action in fresh.items()})
            known |= fresh
        return known


def _as_released(
    live: Mapping[int, Action], keys: Collection[AcceptedKey]
) -> dict[AcceptedKey, Action]:
    """These actions as these releases define them. One that a release does not have, which can only
    be a fault of ours, is as it is now: its execution must still get an end."""
    if not keys:
        return {}
    rows = apps.get_model("orchestrator.ReleaseAction")._default_manager.filter(
        release__in={release for _, release in keys}, action__in={id for id, _ in keys}
    )
    defined: dict[AcceptedKey, Any] = {
        (row.action_id, row.release_id): row for row in rows.select_related("release")
    }
    actions = {}
    for key in keys:
        action = copy.copy(live[key[0]])
        if (row := defined.get(key)) is not None:
            action.release = row.release
            for name, value in row.definition.items():
                if name != "enabled" or action.enabled_override is None:
                    setattr(action, name, value)
        actions[key] = action
    return actions


_of_ids = PreparedForIds(lambda ids: Action.objects.select_related("pack").filter(pk__in=ids), -57)
_of_refs = PreparedForIds(
    lambda refs: Action.objects.select_related("pack").filter(ref__in=refs), "any.ref"
)

_by_ref: dict[str, tuple[float, Action]] = {}
"""The time at which each action was read, and the action."""

_accepted: dict[AcceptedKey, tuple[float, Action]] = {}
"""The same for those of accepted executions."""


def forget_actions(**_: object) -> None:
    """Drop the cache, after this process itself has changed an action."""
    _by_ref.clear()
    _accepted.clear()


def longest_wait_ms(queue_ttl_ms: int | None, scheduled_timeout_seconds: float | None) -> int:
    """The shorter of the two limits, or of the installation's; never above the queue's own TTL."""
    muster = settings.MUSTER
    queue_limit: int = muster.worker_queue_ttl_ms
    wait_seconds = scheduled_timeout_seconds or muster.scheduled_timeout_seconds
    return max(1, min(queue_ttl_ms or queue_limit, queue_limit, round(wait_seconds * 1000)))


def waits_too_long(
    queue_ttl_ms: int | None, scheduled_timeout_seconds: float | None
) -> Iterator[tuple[str, str]]:
    """The limits that exceed the TTL of a worker's queue, which would cut them, each with a
    message."""
    limit_ms: int = settings.MUSTER.worker_queue_ttl_ms
    why = "the TTL of a worker's queue, MUSTER_WORKER_QUEUE_TTL_MS"
    if (queue_ttl_ms or 0) > limit_ms:
        yield "queue_ttl_ms", f"expected at most {limit_ms} ({why}), found {queue_ttl_ms}"
    if (scheduled_timeout_seconds or 0) * 1000 > limit_ms:
        text = f"found {scheduled_timeout_seconds:g}"
        yield (
            "scheduled_timeout_seconds",
            f"expected at most {limit_ms / 1000:g} ({why}), {text}",
        )


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
        default=dict, blank=True, help_text="See `orchestrator.core.packs.runtimes`."
    )
    limits = models.JSONField(
        default=dict, blank=True, help_text="What its processes may use at most."
    )
    isolation = models.CharField(
        max_length=10,
        choices=[(level, level) for level in levels.LEVELS],
        default=levels.PROCESS,
        help_text="What its code is kept away from, at least.",
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
        default=dict, blank=True, help_text="Labels that its worker must have, with these values."
    )
    retry_policy = models.JSONField(
        default=dict, blank=True, help_text="See `orchestrator.core.retry_policy`."
    )
    queue = models.CharField(
        max_length=100,
        blank=True,
        default="",
        help_text="The queue of requests that name none; empty for the default one.",
    )
    idempotent = models.BooleanField(
        default=False, help_text="Running it twice does no harm: an unknown outcome may be retried."
    )
    on_no_worker = models.CharField(
        max_length=4, choices=OnNoWorker.choices, default=OnNoWorker.FAIL
    )
    dangerous = models.BooleanField(
        default=False,
        help_text="It does whatever its caller says: requests need actions.run_any_command, too.",
    )
    enabled = models.BooleanField(default=True)
    enabled_override = models.BooleanField(
        null=True, blank=True, help_text="As an operator said; outlives upgrades."
    )
    retired_at = models.DateTimeField(
        null=True, blank=True, help_text="Since when its pack does not have it any more."
    )
    updated_at = models.DateTimeField()

    release: Any = None
    """Of an action as a release defines it, that `Release`: see `ActionQuerySet.known`."""

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

    @property
    def place(self) -> Place:
        """Its pack, for scopes."""
        return Place.of_ref(PACKS, self.ref)


post_save.connect(forget_actions, sender=Action)
post_delete.connect(forget_actions, sender=Action)
