"""The owners of rules: with whose permissions a rule runs its action."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from orchestrator.access import identities
from orchestrator.access.authorizer import Identified
from orchestrator.access.models import Identity
from orchestrator.core.authority import Principal


def of(principal: Principal | None, *, now: datetime) -> Identity | None:
    """The identity to own what this caller installs; None is the installation itself, for whoever
    holds the database's credentials. Raises UnknownIdentity."""
    name = getattr(principal, "identity", "")
    return identities.find(name, now=now) if name else None


def principals(owner_ids: Collection[int]) -> dict[int, Principal]:
    """Those of the owners that are not disabled, each with the grants that it has now."""
    rows = Identity.objects.filter(pk__in=owner_ids).select_related("user")
    # no other columns of users: who runs executors may not read them
    rows = rows.only(
        "service_name", "is_legacy", "disabled_at",
        "user__username", "user__is_active", "user__is_superuser",
    ).prefetch_related("grants")  # fmt: skip
    return {row.pk: _principal(row) for row in rows if not row.is_disabled}


def _principal(identity: Identity) -> Principal:
    return Identified(
        actor=str(identity),
        key_owner=identity.key_owner,
        layers=(identities.given_to(identity),),
        identity=str(identity),
        identity_id=identity.pk,
    )
