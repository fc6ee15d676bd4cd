"""Identities, grants and tokens: as JSON, for all faces."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import BaseModel, Field

from orchestrator.access import grants, identities, tokens
from orchestrator.access.grants import Given
from orchestrator.access.models import ApiToken, Grant, Identity
from orchestrator.core.shown.documents import Shown


class ScopeOut(BaseModel):
    """The part of the installation in which a grant holds; all of it if nothing is listed."""

    packs: list[str] = Field(default=[], description="Names; `*` stands for any characters.")
    namespaces: list[str] = Field(default=[], description="Likewise, of templates.")
    labels: dict[str, str] = Field(default={}, description="Labels of workers, all of them.")


class GivenOut(BaseModel):
    """A role or a permission, and where it holds."""

    gives: str = Field(description="A role, or a single permission.", examples=["operator"])
    scope: ScopeOut = ScopeOut()


class GrantOut(GivenOut):
    """A grant of an identity."""

    id: int
    granted_by: str
    granted_at: datetime


class IdentityOut(Shown):
    """A person or a service account."""

    id: int
    kind: str = Field(description="`user` or `service`.")
    name: str
    description: str
    state: str = Field(description="`enabled` or `disabled`.")
    is_superuser: bool = Field(description="true for an admin without a grant.")
    created_at: datetime
    grants: list[GrantOut]


class TokenOut(Shown):
    """A token, without its text."""

    id: int
    name: str
    owner: str
    prefix: str = Field(description="The first characters of its text.")
    state: str = Field(description="`usable`, `rotated`, `expired` or `revoked`.")
    only: list[GivenOut] | None = Field(
        description="What it may do of what its owner may; null for all of that."
    )
    networks: list[str] = Field(description="Networks of its callers; empty for any.")
    created_at: datetime
    created_by: str
    last_used_at: datetime | None
    expires_at: datetime | None
    superseded_at: datetime | None = Field(description="The time when it was rotated.")
    revoked_at: datetime | None


class TokenWithText(TokenOut):
    """A new token, with its text."""

    token: str = Field(description="Its text. It is shown only now.")


COPIED = (
    "name", "prefix", "networks", "created_at", "created_by", "last_used_at", "expires_at",
    "superseded_at", "revoked_at",
)  # fmt: skip


def given(each: Given) -> GivenOut:
    """Convert a role or a permission."""
    return GivenOut(gives=each.gives, scope=ScopeOut(**grants.scope_as_json(each.scope)))


def grant(row: Grant) -> GrantOut:
    """Convert a grant."""
    return GrantOut(
        id=row.pk,
        gives=row.gives,
        scope=ScopeOut(**row.scope),
        granted_by=row.granted_by,
        granted_at=row.granted_at,
    )


def identity(row: Identity) -> IdentityOut:
    """Convert an identity, with its grants."""
    return IdentityOut(
        id=row.pk,
        kind=row.kind,
        name=row.name,
        description=row.description,
        state=identities.state(row),
        is_superuser=row.is_superuser,
        created_at=row.created_at,
        grants=[grant(each) for each in row.grants.all()],
    )


def token(row: ApiToken, *, now: datetime) -> TokenOut:
    """Convert a token, loaded with its owner."""
    return TokenOut(**_token(row, now))


def with_text(row: ApiToken, text: str, *, now: datetime) -> TokenWithText:
    """Convert a new token."""
    return TokenWithText(**_token(row, now), token=text)


def only(row: ApiToken) -> list[Given] | None:
    """The grants that narrow the token; None if it is not narrowed."""
    return None if row.grants is None else [grants.of_json(each) for each in row.grants]


def _token(row: ApiToken, now: datetime) -> dict[str, Any]:
    narrowed = only(row)
    return {name: getattr(row, name) for name in COPIED} | {
        "id": row.pk,
        "owner": str(row.identity),
        "state": tokens.state(row, now=now),
        "only": None if narrowed is None else [given(each) for each in narrowed],
    }
