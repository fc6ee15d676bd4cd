"""Identities and their grants: list, create, disable, grant."""

from __future__ import annotations

from django.db.models import QuerySet
from django.http import HttpResponse
from ninja import Body, Query, Router
from pydantic import BaseModel, ConfigDict, Field, model_validator

from orchestrator.access import grants, identities, shown
from orchestrator.access.models import Grant, Identity
from orchestrator.access.shown import GrantOut, IdentityOut, ScopeOut
from orchestrator.core import cursors
from orchestrator.core.api import pages
from orchestrator.core.api.access import AuthenticatedRequest, needs
from orchestrator.core.api.application import refuse_unknown_parameters
from orchestrator.core.api.problems import FieldProblem, invalid
from orchestrator.core.api.replies import documented, reply

router = Router(tags=["access"])


class NewIdentity(BaseModel):
    """A service account to make, or a user of the admin who is to get grants or tokens."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: pages.Text | None = Field(
        None, min_length=1, max_length=100, examples=["ci"], description="Of a service account."
    )
    user: pages.Text | None = Field(
        None, min_length=1, max_length=150, description="The name of a user, instead."
    )
    description: pages.Text = Field("", max_length=200)

    @model_validator(mode="after")
    def _names_one(self) -> NewIdentity:
        if (self.name is None) == (self.user is None):
            raise ValueError("expected a name, or a user")
        return self


class NewGrant(BaseModel):
    """A role or a permission to give, and where it holds."""

    model_config = ConfigDict(extra="forbid", strict=True)

    gives: str = Field(max_length=60, examples=["operator"])
    scope: ScopeOut = ScopeOut()


class IdentityPage(pages.Page):
    items: list[IdentityOut]


class Granted(BaseModel):
    """The grants that an identity has."""

    items: list[GrantOut]


@router.get("", auth=needs("access.manage"), response=documented(422, _200=IdentityPage))
def list_identities(request: AuthenticatedRequest, query: Query[pages.PageQuery]) -> HttpResponse:
    """Identities, newest first, with their grants."""
    refuse_unknown_parameters(request, pages.PageQuery)
    rows, cursor = pages.newest_first(_rows(), query, key=cursors.whole_number)
    items = [shown.identity(row) for row in rows]
    return reply(IdentityPage(items=items, next=pages.link(request, cursor), next_cursor=cursor))


@router.post("", auth=needs("access.manage"), response=documented(409, _201=IdentityOut))
def create_identity(request: AuthenticatedRequest, new: Body[NewIdentity]) -> HttpResponse:
    """Make an identity. It may do nothing until it is granted something; a superuser may do
    everything."""
    try:
        if new.user is not None:
            row = identities.of_user(new.user, now=request.auth.now)
        else:
            row = identities.create_service(
                new.name or "", description=new.description, now=request.auth.now
            )
    except identities.InvalidName as error:
        raise invalid([FieldProblem(pointer="/name", message=str(error))]) from None
    except identities.UnknownIdentity as error:
        raise invalid([FieldProblem(pointer="/user", message=str(error))]) from None
    return reply(shown.identity(row), status=201, location=f"{request.path}/{row.pk}")


@router.get(
    "/{identity_id}", auth=needs("access.manage"), response=documented(404, _200=IdentityOut)
)
def get_identity(request: AuthenticatedRequest, identity_id: pages.RowId) -> HttpResponse:
    """One identity, with its grants."""
    return reply(shown.identity(_one(identity_id)))


@router.post(
    "/{identity_id}/disable",
    auth=needs("access.manage"),
    response=documented(404, 409, _200=IdentityOut),
)
def disable_identity(request: AuthenticatedRequest, identity_id: pages.RowId) -> HttpResponse:
    """Refuse everything in its name from now on, its tokens included. Safe to repeat."""
    identities.disable(_one(identity_id), by=request.auth.principal, now=request.auth.now)
    return reply(shown.identity(_one(identity_id)))


@router.post(
    "/{identity_id}/enable",
    auth=needs("access.manage"),
    response=documented(404, _200=IdentityOut),
)
def enable_identity(request: AuthenticatedRequest, identity_id: pages.RowId) -> HttpResponse:
    """Accept it again, and those of its tokens that are neither revoked nor expired."""
    identities.enable(_one(identity_id), by=request.auth.principal)
    return reply(shown.identity(_one(identity_id)))


@router.post(
    "/{identity_id}/grants",
    auth=needs("access.manage"),
    response=documented(404, 409, _201=GrantOut),
)
def create_grant(
    request: AuthenticatedRequest, identity_id: pages.RowId, new: Body[NewGrant]
) -> HttpResponse:
    """Give a role or a permission. Nobody gives what they do not have: 403."""
    row = _one(identity_id)
    try:
        given = grants.check(new.gives, **new.scope.model_dump())
    except grants.InvalidGrant as error:
        raise invalid([FieldProblem(pointer="/gives", message=str(error))]) from None
    grant = identities.grant(row, given, by=request.auth.principal, now=request.auth.now)
    return reply(shown.grant(grant), status=201, location=f"{request.path}/{grant.pk}")


@router.delete(
    "/{identity_id}/grants/{grant_id}",
    auth=needs("access.manage"),
    response=documented(404, 409, _200=Granted),
)
def revoke_grant(
    request: AuthenticatedRequest, identity_id: pages.RowId, grant_id: pages.RowId
) -> HttpResponse:
    """Take a grant away; the answer has those that are left."""
    row = _one(identity_id)
    chosen = list(Grant.objects.filter(pk=grant_id, identity=row))
    if not chosen:
        raise identities.UnknownGrant(f"{row} has no grant with the id {grant_id}")
    identities.revoke(row, chosen, by=request.auth.principal)
    left = Grant.objects.filter(identity=row)
    return reply(Granted(items=[shown.grant(each) for each in left]))


def _rows() -> QuerySet[Identity]:
    return Identity.objects.select_related("user").prefetch_related("grants")


def _one(identity_id: int) -> Identity:
    row = _rows().filter(pk=identity_id).first()
    if row is None:
        raise identities.UnknownIdentity(f"No identity has the id {identity_id}")
    return row
