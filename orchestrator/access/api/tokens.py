"""Tokens: list, create, rotate, revoke."""

from __future__ import annotations

from datetime import timedelta

from django.db.models import QuerySet
from django.http import HttpResponse
from ninja import Body, Query, Router
from pydantic import BaseModel, ConfigDict, Field

from orchestrator.access import grants, identities, shown, tokens
from orchestrator.access.authorizer import Identified
from orchestrator.access.models import ApiToken
from orchestrator.access.shown import GivenOut, TokenOut, TokenWithText
from orchestrator.core import authority, cursors
from orchestrator.core.api import pages
from orchestrator.core.api.access import AuthenticatedRequest, needs
from orchestrator.core.api.application import refuse_unknown_parameters
from orchestrator.core.api.problems import FieldProblem, invalid, not_found
from orchestrator.core.api.replies import documented, reply
from orchestrator.core.errors import MusterError

router = Router(tags=["access"])


class NewToken(BaseModel):
    """A token to make."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: pages.Text = Field(min_length=1, max_length=100, examples=["ci"])
    owner: pages.Text = Field(
        min_length=1, max_length=160, examples=["service:ci"], description="An identity."
    )
    only: list[GivenOut] | None = Field(
        None, max_length=50, description="Narrows what it may do of what its owner may."
    )
    networks: list[str] = Field([], description="Networks of its callers; empty for any.")
    expires_in_days: float = Field(tokens.LIFETIME.days, gt=0, le=tokens.LONGEST_LIFETIME.days)


class Rotation(BaseModel):
    """The time for which the old text is still accepted."""

    model_config = ConfigDict(extra="forbid", strict=True)

    overlap_seconds: float = Field(3_600, ge=0, le=tokens.LONGEST_OVERLAP.total_seconds())


class TokenPage(pages.Page):
    items: list[TokenOut]


@router.get("", auth=needs("tokens.own"), response=documented(422, _200=TokenPage))
def list_tokens(request: AuthenticatedRequest, query: Query[pages.PageQuery]) -> HttpResponse:
    """The caller's tokens, newest first; with `tokens.manage` everybody's."""
    refuse_unknown_parameters(request, pages.PageQuery)
    rows, cursor = pages.newest_first(_known(request), query, key=cursors.whole_number)
    items = [shown.token(row, now=request.auth.now) for row in rows]
    return reply(TokenPage(items=items, next=pages.link(request, cursor), next_cursor=cursor))


@router.post("", auth=needs("tokens.manage"), response=documented(409, _201=TokenWithText))
def create_token(request: AuthenticatedRequest, new: Body[NewToken]) -> HttpResponse:
    """Make a token; the answer has its text, once. It may do no more than the caller: 403."""
    caller = request.auth
    try:
        owner = identities.find(new.owner, now=caller.now)
    except (identities.UnknownIdentity, identities.AmbiguousIdentity) as error:
        raise invalid([FieldProblem(pointer="/owner", message=str(error))]) from None
    try:
        row, text = tokens.create(
            name=new.name,
            owner=owner,
            by=caller.principal,
            only=None if new.only is None else [_given(each) for each in new.only],
            networks=new.networks,
            lifetime=timedelta(days=new.expires_in_days),
            now=caller.now,
        )
    except REFUSED as error:
        raise invalid([FieldProblem(pointer=_pointer(error), message=str(error))]) from None
    return _with_text(request, row, text)


@router.post(
    "/{token_id}/rotate",
    auth=needs("tokens.manage"),
    response=documented(404, 409, _201=TokenWithText),
)
def rotate_token(
    request: AuthenticatedRequest, token_id: pages.RowId, new: Body[Rotation]
) -> HttpResponse:
    """Give it another text; the answer has it, once. The old one is accepted for the overlap."""
    row, text = tokens.rotate(
        _one(request, token_id),
        by=request.auth.principal,
        overlap=timedelta(seconds=new.overlap_seconds),
        now=request.auth.now,
    )
    return _with_text(request, row, text)


@router.delete("/{token_id}", auth=needs("tokens.own"), response=documented(404, _200=TokenOut))
def revoke_token(request: AuthenticatedRequest, token_id: pages.RowId) -> HttpResponse:
    """Refuse it from now on, with all texts of its name; one's own, or anybody's with
    `tokens.manage`. Safe to repeat."""
    row = _one(request, token_id)
    if row.revoked_at is None:
        tokens.revoke(row, by=request.auth.principal, now=request.auth.now)
    return reply(shown.token(_one(request, token_id), now=request.auth.now))


REFUSED = (tokens.InvalidName, tokens.InvalidToken)


def _pointer(error: MusterError) -> str:
    return "/name" if isinstance(error, tokens.InvalidName) else ""


def _given(each: GivenOut) -> grants.Given:
    try:
        return grants.check(each.gives, **each.scope.model_dump())
    except grants.InvalidGrant as error:
        raise invalid([FieldProblem(pointer="/only", message=str(error))]) from None


def _known(request: AuthenticatedRequest) -> QuerySet[ApiToken]:
    """The tokens that the caller may know of."""
    rows = ApiToken.objects.select_related("identity__user")
    principal = request.auth.principal
    if authority.may(principal, "tokens.manage"):
        return rows
    own = principal.identity_id if isinstance(principal, Identified) else None
    return rows.filter(identity=own)


def _one(request: AuthenticatedRequest, token_id: int) -> ApiToken:
    row = _known(request).filter(pk=token_id).first()
    if row is None:
        raise not_found(f"No token has the id {token_id}")
    return row


def _with_text(request: AuthenticatedRequest, row: ApiToken, text: str) -> HttpResponse:
    answer = reply(shown.with_text(row, text, now=request.auth.now), status=201)
    answer["Cache-Control"] = "no-store"
    return answer
