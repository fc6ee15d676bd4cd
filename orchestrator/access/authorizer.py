"""The authorizer that the setting `AUTHORIZER` names: who asks, and the one place that decides."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from uuid import UUID

from django.conf import settings
from django.http import HttpRequest

from orchestrator.access import audit, grants, identities
from orchestrator.access.grants import EVERYTHING, Layers
from orchestrator.access.models import Identity
from orchestrator.core.authority import (
    EVERYWHERE,
    NOWHERE,
    Decision,
    Nobody,
    Place,
    Principal,
    Reach,
)
from orchestrator.core.errors import MusterError
from orchestrator.core.frame import INSTALLATION, ROLES
from orchestrator.core.management import arguments


class UnknownPermission(MusterError):
    """No app brings this permission."""


@dataclass(frozen=True)
class Identified:
    """An identity, with what it was granted when the request came. Nothing of it is kept longer."""

    actor: str
    key_owner: int
    layers: Layers
    """Its grants, and then those of its token, which narrow them."""
    identity: str = ""
    """`user:NAME` or `service:NAME`."""
    identity_id: int | None = None
    token_prefix: str = ""

    def names_at(self, place: Place) -> frozenset[str]:
        given = (each for each in self.layers[0] if each.scope.covers(place))
        roles = {f"role:{each.gives}" for each in given if each.gives in ROLES}
        return frozenset({self.identity, *roles})

    @property
    def execution_id(self) -> UUID | None:
        return None

    def reach(self, permission: str) -> Reach:
        return grants.reach_of(self.layers, permission)


@dataclass(frozen=True)
class OfExecution:
    """An execution that runs now, by a token of its own: it acts for nobody else."""

    actor: str
    execution_id: UUID
    action_ref: str
    permissions: frozenset[str]
    key_owner: int = -1
    """No identity's: it has no idempotency keys, and has asked nothing but as itself."""

    @property
    def identity(self) -> str:
        return self.actor

    def names_at(self, place: Place) -> frozenset[str]:
        return frozenset({f"action:{self.action_ref}"})

    def reach(self, permission: str) -> Reach:
        return EVERYWHERE if permission in self.permissions else NOWHERE


@dataclass(frozen=True)
class AtTerminal:
    """Whoever runs `manage.py`: an administrator, as they hold the database's credentials."""

    actor: str
    key_owner: int = 0
    execution_id: UUID | None = None

    def names_at(self, place: Place) -> frozenset[str]:
        return frozenset({self.actor, *(f"role:{role}" for role in ROLES)})

    def reach(self, permission: str) -> Reach:
        return EVERYWHERE


class Authorizer:
    """Decides by the grants of identities."""

    def authorize(self, principal: Principal, permission: str, place: Place | None) -> Decision:
        """Decide. Each decision of each face passes here, and nowhere else."""
        known = grants.permissions().get(permission)
        if known is None:
            raise UnknownPermission(f"No app brings the permission {permission!r}")
        reach = principal.reach(permission)
        if place is not None:
            is_allowed = reach.covers(place)
        elif INSTALLATION in known.about:
            is_allowed = reach.is_everywhere
        else:
            is_allowed = bool(reach)
        decision = Decision(principal, permission, place, is_allowed, reach)
        audit.decided(decision)
        return decision

    def required(self, decision: Decision) -> None:
        audit.required(decision)

    def refused(self, principal: Principal, permission: str, about: str, why: str) -> None:
        kind, _, id = about.partition(" ")
        audit.record(
            permission,
            actor=audit.of_principal(principal),
            object_kind=kind,
            object_id=id,
            decision=audit.Decision.DENIED,
            reason=why,
        )

    def watched(self, about: str) -> AbstractContextManager[None]:
        return audit.watched_command(about)

    def of_request(self, request: HttpRequest) -> Principal:
        user = request.user
        if not user.is_active or user.pk is None:
            return Nobody()
        # one query: no identity, or one with any number of grants
        rows = list(
            Identity.objects.filter(user=user.pk).values("pk", "grants__gives", "grants__scope")
        )
        given = tuple(
            grants.of_json({"gives": row["grants__gives"], "scope": row["grants__scope"]})
            for row in rows
            if row["grants__gives"]
        )
        actor = f"user:{user.get_username()}"
        return Identified(
            actor=actor,
            # who has no identity has no keys either, and this number is nobody's
            key_owner=rows[0]["pk"] if rows else -1,
            layers=((*EVERYTHING, *given) if user.is_superuser else given,),
            identity=actor,
            identity_id=rows[0]["pk"] if rows else None,
        )

    def at_terminal(self) -> Principal:
        actor = arguments.user()
        name: str = settings.MUSTER.command_identity
        if not name:
            return AtTerminal(actor)
        identity = identities.find(name)
        if identity.is_disabled:
            raise identities.IdentityIsDisabled(f"MUSTER_COMMAND_IDENTITY: {identity} is disabled")
        return Identified(
            actor=f"{actor} as {identity}"[:150],
            key_owner=identity.key_owner,
            layers=(identities.given_to(identity),),
            identity=str(identity),
            identity_id=identity.pk,
        )
