"""Searches that people keep under a name."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import Q

from orchestrator.core.authority import Principal

NAME_MAX = 60
TEXT_MAX = 1_000
"""The longest search, see `search.grammar`."""


class SavedSearchQuerySet(models.QuerySet["SavedSearch"]):
    def of(self, principal: Principal) -> SavedSearchQuerySet:
        """Those that this person has saved."""
        return self.filter(owner=principal.actor)

    def visible_to(self, principal: Principal) -> SavedSearchQuerySet:
        """Their own, and those that are shared."""
        return self.filter(Q(owner=principal.actor) | Q(is_shared=True))


class SavedSearch(models.Model):
    """A search of executions under a name, for the one who saved it or for everybody."""

    owner = models.CharField(max_length=160, help_text="As histories name whoever saved it.")
    name = models.CharField(max_length=NAME_MAX)
    text = models.CharField(max_length=TEXT_MAX, help_text="In the language of docs/search.md.")
    is_shared = models.BooleanField(default=False)
    created_at = models.DateTimeField()

    objects: ClassVar[SavedSearchQuerySet] = SavedSearchQuerySet.as_manager()  # type: ignore[assignment]

    class Meta:
        ordering = ["name", "pk"]
        constraints = [
            models.UniqueConstraint("owner", "name", name="saved_search_name_of_owner_is_unique"),
        ]

    def __str__(self) -> str:
        return f"{self.name}: {self.text}"
