"""Releases of packs: the immutable content of a version, and its actions as they were in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import models

from orchestrator.core.models.catalog import Action, Pack

if TYPE_CHECKING:
    from django_stubs_ext.db.models.manager import RelatedManager


class ReleaseQuerySet(models.QuerySet["Release"]):
    def current(self) -> ReleaseQuerySet:
        """New executions get these."""
        return self.filter(current_of__isnull=False)


class Release(models.Model):
    """The content of one version of a pack. Never changed, and never removed: what goes when nobody
    needs it any more is its content."""

    pack = models.ForeignKey(Pack, on_delete=models.PROTECT, related_name="releases")
    pack_id: int
    version = models.CharField(max_length=40)
    digest = models.CharField(
        max_length=64, unique=True, help_text="SHA-256 of its sorted, normalised files."
    )
    folder = models.CharField(
        max_length=100, help_text="The name of its folder, by which Python finds its modules."
    )
    size = models.PositiveBigIntegerField(help_text="Bytes of all files together.")
    files = models.PositiveIntegerField()
    kept_in = models.CharField(
        max_length=10, choices=[(name, name) for name in ("database", "storage")]
    )
    installed_at = models.DateTimeField(help_text="When it was installed last.")
    installed_by = models.CharField(max_length=150, blank=True)
    retired_at = models.DateTimeField(
        null=True, blank=True, help_text="Since when new executions do not get it."
    )
    content_gone_at = models.DateTimeField(
        null=True, blank=True, help_text="When its content was removed, as nobody needed it."
    )

    objects = ReleaseQuerySet.as_manager()

    if TYPE_CHECKING:
        actions: RelatedManager[ReleaseAction]
        chunks: RelatedManager[ReleaseChunk]

    class Meta:
        ordering = ["-installed_at", "-pk"]

    def __str__(self) -> str:
        return f"{self.pack.name} {self.version} ({self.short})"

    @property
    def short(self) -> str:
        """The part of the digest that people read."""
        return self.digest[:12]


class ReleaseAction(models.Model):
    """An action as a release defines it."""

    release = models.ForeignKey(Release, on_delete=models.CASCADE, related_name="actions")
    release_id: int
    action = models.ForeignKey(Action, on_delete=models.PROTECT, related_name="+", db_index=False)
    action_id: int
    definition = models.JSONField(help_text="The fields of the action.")

    class Meta:
        constraints = [
            models.UniqueConstraint("release", "action", name="release_action_is_unique"),
        ]

    def __str__(self) -> str:
        return f"{self.action.ref} of release {self.release_id}"


class ReleaseChunk(models.Model):
    """A part of the packed content of a release."""

    release = models.ForeignKey(
        Release, on_delete=models.CASCADE, related_name="chunks", db_index=False
    )
    number = models.PositiveIntegerField()
    data = models.BinaryField()

    class Meta:
        ordering = ["release", "number"]
        constraints = [
            models.UniqueConstraint("release", "number", name="release_chunk_is_unique"),
        ]

    def __str__(self) -> str:
        return f"chunk {self.number} of release {self.release_id}"
