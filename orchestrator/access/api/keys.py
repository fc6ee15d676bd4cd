"""Keys over the API: list, create, rotate, revoke. No answer has a value in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

from django.http import HttpResponse
from ninja import Body, Path, Query, Router
from pydantic import BaseModel, ConfigDict, Field, SecretStr

from orchestrator.access import keys
from orchestrator.access.authorizer import Identified
from orchestrator.access.keys import shown
from orchestrator.access.keys.shown import KeyOut
from orchestrator.access.models import Key
from orchestrator.core.api import pages, problems
from orchestrator.core.api.access import AuthenticatedRequest, Caller, needs
from orchestrator.core.api.application import refuse_unknown_parameters
from orchestrator.core.api.problems import FieldProblem
from orchestrator.core.api.replies import documented, reply

router = Router(tags=["keys"])

Part = Annotated[pages.Text, Path()]


class KeyList(BaseModel):
    """Keys, by reference."""

    items: list[KeyOut]


class KeyQuery(BaseModel):
    revoked: bool = Field(False, description="true to include revoked keys.")


class NewKeyIn(BaseModel):
    """A key to create."""

    model_config = ConfigDict(extra="forbid", strict=True)

    reference: str = Field(
        examples=["billing/stripe"],
        description="`PACK/NAME`, `installation/NAME`, or `user/NAME` for one of the caller's.",
    )
    value: SecretStr = Field(description="8 characters to 64 KiB. It is never returned.")
    packs: list[str] = Field(
        [], description="For `installation/NAME`: packs whose actions may get it; `*` is any text."
    )
    description: str = ""


class NewValue(BaseModel):
    """Another value."""

    model_config = ConfigDict(extra="forbid", strict=True)

    value: SecretStr = Field(description="8 characters to 64 KiB. It is never returned.")


@router.get("", auth=needs("keys.read"), response=documented(422, _200=KeyList))
def list_keys(request: AuthenticatedRequest, query: Query[KeyQuery]) -> HttpResponse:
    """The keys within reach, and the caller's own, without their values; on one page."""
    refuse_unknown_parameters(request, KeyQuery)
    rows = Key.objects.all() if query.revoked else Key.objects.usable()
    visible = rows.visible_to(request.auth.principal)
    return reply(KeyList.model_construct(items=[shown.whole(key) for key in visible]))


@router.post("", auth=needs("keys.manage"), response=documented(409, _201=KeyOut))
def create_key(request: AuthenticatedRequest, new: Body[NewKeyIn]) -> HttpResponse:
    """Create a key. The name of a revoked one is free again."""
    caller = request.auth
    with _refusals():
        wanted = keys.NewKey(
            reference=_reference(new.reference, caller),
            value=new.value.get_secret_value(),
            packs=new.packs,
            description=new.description,
        )
        key = keys.create(wanted, by=caller.principal, now=caller.now)
    return reply(shown.whole(key), status=201)


@router.post(
    "/{owner}/{name}/rotate", auth=needs("keys.manage"), response=documented(404, _200=KeyOut)
)
def rotate_key(
    request: AuthenticatedRequest, owner: Part, name: Part, new: Body[NewValue]
) -> HttpResponse:
    """Give a key another value: executions that are claimed from now on get it."""
    caller = request.auth
    reference = _known(owner, name, caller)
    with _refusals():
        key = keys.rotate(
            reference,
            value=new.value.get_secret_value(),
            by=caller.principal,
            now=caller.now,
        )
    return reply(shown.whole(key))


@router.delete("/{owner}/{name}", auth=needs("keys.manage"), response=documented(404, _200=KeyOut))
def revoke_key(request: AuthenticatedRequest, owner: Part, name: Part) -> HttpResponse:
    """Destroy its value. What refers to it is refused from now on."""
    caller = request.auth
    key = keys.revoke(_known(owner, name, caller), by=caller.principal, now=caller.now)
    return reply(shown.whole(key))


def _identity(caller: Caller) -> str:
    """The identity whose keys are under `user/`; empty if the caller has none."""
    principal = caller.principal
    return principal.identity if isinstance(principal, Identified) else ""


def _reference(text: str, caller: Caller) -> keys.Reference:
    try:
        return keys.Reference.read(text, user=_identity(caller))
    except keys.InvalidReference as error:
        raise keys.InvalidKey("reference", str(error)) from None


def _known(owner: str, name: str, caller: Caller) -> keys.Reference:
    try:
        return keys.Reference.read(f"{owner}/{name}", user=_identity(caller))
    except keys.InvalidReference:
        raise keys.UnknownKey("There is no such key") from None


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except keys.InvalidKey as error:
        field = FieldProblem(pointer=f"/{error.field}", message=error.message)
        raise problems.invalid([field]) from None
