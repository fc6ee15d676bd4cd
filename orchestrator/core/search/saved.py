"""Saved searches: kept under a name, for oneself or for everybody.

Whoever may read executions keeps their own. What everybody sees needs `searches.share`, to add it
and to remove that of somebody else.
"""

from __future__ import annotations

import unicodedata
from datetime import datetime

from django.db import transaction
from django.db.models import Case, When

from orchestrator.core import authority
from orchestrator.core.authority import Principal
from orchestrator.core.errors import Conflict, MusterError, NotFound
from orchestrator.core.models import SavedSearch
from orchestrator.core.models.saved_searches import NAME_MAX
from orchestrator.core.search.conditions import Asked
from orchestrator.core.search.terms import read

READS = "executions.read"
SHARES = "searches.share"

MOST_OF_ONE = 50
"""Searches that one person keeps."""
MOST_SHOWN = 100
"""Searches in a list: one's own, and shared ones."""


class NotToBeSaved(MusterError):
    """A search that cannot be saved: its name or its text is wrong."""


class NameTaken(Conflict):
    """You have saved a search of this name: remove it first, or choose another name."""

    kind = "name-taken"


class TooManySaved(Conflict):
    """You have saved as many searches as one person may: remove one first."""

    kind = "too-many-saved"


class UnknownSearch(NotFound):
    """No saved search has this number."""


def save(
    name: str, text: str, *, is_shared: bool, principal: Principal, now: datetime
) -> SavedSearch:
    """Keep a search. Raises NotToBeSaved, NotUnderstood, NameTaken, TooManySaved and
    PermissionMissing."""
    authority.require(principal, READS)
    if is_shared:
        authority.require(principal, SHARES)
    name, text = name.strip(), " ".join(text.split())
    if not 1 <= len(name) <= NAME_MAX or not all(map(_may_stand, name)):
        raise NotToBeSaved(f"A name of 1 to {NAME_MAX} characters is needed, in one line.")
    if not text:
        raise NotToBeSaved("Nothing was searched for: there is nothing to save.")
    read(text, Asked(principal, now))
    own = SavedSearch.objects.of(principal)
    with transaction.atomic():
        if own.count() >= MOST_OF_ONE:
            raise TooManySaved
        row, is_new = own.get_or_create(
            owner=principal.actor,
            name=name,
            defaults={"text": text, "is_shared": is_shared, "created_at": now},
        )
    if not is_new:
        raise NameTaken
    return row


def remove(id: int, *, principal: Principal) -> SavedSearch:
    """Remove one's own, or a shared one; returns it. Raises UnknownSearch, PermissionMissing."""
    row = SavedSearch.objects.visible_to(principal).filter(pk=id).first()
    if row is None:
        raise UnknownSearch
    if row.owner != principal.actor:
        authority.require(principal, SHARES)
    row.delete()
    return row


def listed(principal: Principal) -> list[SavedSearch]:
    """One's own and the shared ones, by name, as many as a page shows."""
    is_other = Case(When(owner=principal.actor, then=0), default=1)
    rows = SavedSearch.objects.visible_to(principal).order_by(is_other, "name", "pk")
    return sorted(rows[:MOST_SHOWN], key=lambda row: row.name)


def _may_stand(character: str) -> bool:
    return unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Zl", "Zp")
