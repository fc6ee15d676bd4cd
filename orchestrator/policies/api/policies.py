"""Policies: list, show, create, change, remove; their buckets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from django.http import HttpResponse
from ninja import Body, Path, Query, Router
from pydantic import BaseModel, ConfigDict, Field

from orchestrator.core.api import pages, problems
from orchestrator.core.api.access import AuthenticatedRequest, needs
from orchestrator.core.api.application import refuse_unknown_parameters
from orchestrator.core.api.problems import FieldProblem
from orchestrator.core.api.replies import documented, reply
from orchestrator.core.json_values import pointer
from orchestrator.policies import changes, definitions
from orchestrator.policies.changes import InvalidPolicy
from orchestrator.policies.models import Policy, PolicyBucket
from orchestrator.policies.shown import policies as shown
from orchestrator.policies.shown.policies import BucketOut, PolicyOut

router = Router(tags=["policies"])

Ref = Annotated[pages.Text, Path()]


class PolicyPage(pages.Page):
    items: list[PolicyOut]


class BucketPage(pages.Page):
    items: list[BucketOut]


class PolicyQuery(pages.PageQuery):
    """Filters; all of them must hold."""

    kind: pages.Text | None = None
    scope: pages.Text | None = None
    target: pages.Text | None = None


class PolicyChange(BaseModel):
    """Values of a policy. What is left out stays as it is; null is the default."""

    model_config = ConfigDict(extra="forbid", strict=True)

    description: pages.Text | None = None
    kind: pages.Text | None = Field(None, description="`concurrency`, `rate` or `quota`.")
    scope: pages.Text | None = Field(
        None, description="`global`, `pack`, `action`, `identity` or `rule`."
    )
    target: pages.Text | None = Field(
        None, description="The pack, the action, the requester or the rule; none if global."
    )
    limit: int | None = None
    window_seconds: float | None = Field(None, description="Of a rate.")
    period: pages.Text | None = Field(None, description="Of a quota: `hour`, `day` or `month`.")
    timezone: pages.Text | None = Field(None, description="Of a quota's period.")
    keyed_by: list[pages.Text] | None = Field(
        None, description="JSON pointers to parameters, at most 5.", examples=[["/host"]]
    )
    on_exceed: pages.Text | None = Field(None, description="`wait` or `reject`.")
    enabled: bool | None = None


class NewPolicyBody(PolicyChange):
    """A policy with its name."""

    ref: pages.Text = Field(examples=["one-deploy"], description="A name without a dot.")


@router.get("", auth=needs("policies.read"), response=documented(422, _200=PolicyPage))
def list_policies(request: AuthenticatedRequest, query: Query[PolicyQuery]) -> HttpResponse:
    """Policies by name, with what is held of them and who waits for them."""
    refuse_unknown_parameters(request, PolicyQuery)
    wanted = query.model_dump(include={"kind", "scope", "target"}, exclude_none=True)
    rows = Policy.objects.in_use().select_related("pack").filter(**wanted)
    found, cursor = pages.by_name(rows, query, field="ref")
    items = shown.all_of(found, now=request.auth.now)
    return reply(PolicyPage(items=items, next=pages.link(request, cursor), next_cursor=cursor))


@router.post("", auth=needs("policies.change"), response=documented(409, 422, _201=PolicyOut))
def create_policy(request: AuthenticatedRequest, body: Body[NewPolicyBody]) -> HttpResponse:
    """Limit what starts from now on. It holds everywhere within a second, and counts what runs
    already."""
    values = body.model_dump(exclude_none=True)
    source = definitions.source_of(values, name=body.ref)
    definitions.check_document(source)
    if source.problems:
        raise problems.invalid(
            FieldProblem(pointer=pointer(each.where), message=each.message)
            for each in source.problems
        )
    new, now = definitions.of_document(values), request.auth.now
    policy = _checked(lambda: changes.create(new, now=now))
    return reply(shown.one(policy, now=now), status=201)


@router.get("/{ref}", auth=needs("policies.read"), response=documented(404, _200=PolicyOut))
def get_policy(request: AuthenticatedRequest, ref: Ref) -> HttpResponse:
    """One policy."""
    return reply(shown.one(changes.find(ref), now=request.auth.now))


@router.patch(
    "/{ref}", auth=needs("policies.change"), response=documented(404, 409, 422, _200=PolicyOut)
)
def change_policy(
    request: AuthenticatedRequest, ref: Ref, body: Body[PolicyChange]
) -> HttpResponse:
    """Change some of its values. What runs goes on; what waits is looked at again. Of a policy of a
    pack only `enabled` can be changed."""
    values, now = body.model_dump(exclude_unset=True), request.auth.now
    policy = _checked(lambda: changes.change(ref, values, now=now))
    return reply(shown.one(policy, now=now))


@router.delete(
    "/{ref}", auth=needs("policies.change"), response=documented(404, 409, _200=PolicyOut)
)
def remove_policy(request: AuthenticatedRequest, ref: Ref) -> HttpResponse:
    """Have it limit nothing any more; what waits for it starts."""
    policy = changes.remove(ref, now=request.auth.now)
    return reply(shown.one(policy, now=request.auth.now))


@router.get(
    "/{ref}/buckets", auth=needs("policies.read"), response=documented(404, 422, _200=BucketPage)
)
def list_buckets(
    request: AuthenticatedRequest, ref: Ref, query: Query[pages.PageQuery]
) -> HttpResponse:
    """The counts of a policy for each value of its key, the newest first."""
    refuse_unknown_parameters(request, pages.PageQuery)
    rows = PolicyBucket.objects.filter(policy=changes.find(ref)).select_related("policy")
    found, cursor = pages.newest_first(rows, query, key=int)
    items = shown.buckets(found, now=request.auth.now)
    return reply(BucketPage(items=items, next=pages.link(request, cursor), next_cursor=cursor))


def _checked(write: Callable[[], Policy]) -> Policy:
    try:
        return write()
    except InvalidPolicy as invalid:
        raise problems.invalid(
            FieldProblem(pointer=pointer(where), message=message)
            for where, message in invalid.problems
        ) from None
