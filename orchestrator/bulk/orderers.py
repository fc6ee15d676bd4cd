"""Whoever ordered, as they may act while their order is worked off: with what they were granted at
ordering, and with no more than they are granted now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from orchestrator.access import grants, identities
from orchestrator.access.authorizer import AtTerminal, Identified
from orchestrator.access.grants import EVERYTHING, Layers
from orchestrator.access.models import Identity
from orchestrator.bulk.models import BulkOrder
from orchestrator.core.authority import Principal
from orchestrator.core.errors import Forbidden


class NobodyToActFor(Forbidden):
    """Only people, services and whoever is at the terminal order in bulk."""


class OrdererIsGone(Forbidden):
    """Whoever ordered it is disabled, or no longer there."""


@dataclass(frozen=True)
class Orderer:
    """The facts that an order keeps of whoever ordered it."""

    actor: str
    key_owner: int
    identity_number: int | None
    layers: Layers

    def as_columns(self) -> Mapping[str, Any]:
        return {
            "ordered_by": self.actor,
            "key_owner": self.key_owner,
            "identity_number": self.identity_number,
            "grants": [[given.as_json() for given in layer] for layer in self.layers],
        }


def of(principal: Principal, *, now: datetime) -> Orderer:
    """Take note of who orders. Raises NobodyToActFor."""
    if isinstance(principal, AtTerminal):
        return Orderer(principal.actor, principal.key_owner, None, (EVERYTHING,))
    if not isinstance(principal, Identified) or not principal.identity:
        raise NobodyToActFor
    # a superuser may have none yet
    identity = identities.find(principal.identity, now=now)
    return Orderer(principal.actor, identity.key_owner, identity.pk, principal.layers)


def principal_of(order: BulkOrder) -> Principal:
    """Whoever ordered it, as they may act now. Raises OrdererIsGone."""
    layers = tuple(tuple(map(grants.of_json, layer)) for layer in order.grants)
    if order.identity_number is None:
        return Identified(order.ordered_by, order.key_owner, layers)
    identity = _found(order.identity_number)
    return Identified(
        actor=order.ordered_by,
        key_owner=order.key_owner,
        layers=(*layers, identities.given_to(identity)),
        identity=str(identity),
        identity_id=identity.pk,
    )


def _found(number: int) -> Identity:
    rows = Identity.objects.filter(pk=number).select_related("user")
    # no other columns of users: who runs executors may not read them
    rows = rows.only(
        "service_name", "is_legacy", "disabled_at",
        "user__username", "user__is_active", "user__is_superuser",
    ).prefetch_related("grants")  # fmt: skip
    identity = rows.first()
    if identity is None or identity.is_disabled:
        raise OrdererIsGone
    return identity
