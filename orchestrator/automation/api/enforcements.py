"""Enforcements: list, show."""

from __future__ import annotations

from uuid import UUID

from django.http import HttpResponse
from ninja import Query, Router
from pydantic import Field

from orchestrator.automation import listing
from orchestrator.automation.models import Enforcement
from orchestrator.automation.shown import enforcements as shown
from orchestrator.automation.shown.enforcements import EnforcementShown
from orchestrator.automation.states import EnforcementState
from orchestrator.core.api import pages, problems
from orchestrator.core.api.access import AuthenticatedRequest, needs
from orchestrator.core.api.application import refuse_unknown_parameters
from orchestrator.core.api.replies import documented, reply

router = Router(tags=["rules"])


class EnforcementPage(pages.Page):
    items: list[EnforcementShown]


class EnforcementQuery(pages.PageQuery):
    """Filters; all of them must hold."""

    rule: pages.Text | None = None
    event_id: UUID | None = None
    execution_id: UUID | None = None
    state: list[EnforcementState] = Field([], description="May be repeated; any of them matches.")
    open: bool | None = Field(None, description="true for those that have not ended.")


@router.get("", auth=needs("rules.read"), response=documented(422, _200=EnforcementPage))
def list_enforcements(
    request: AuthenticatedRequest, query: Query[EnforcementQuery]
) -> HttpResponse:
    """The answers of rules to events, newest first.

    For a state, a page looks at 100,000 of those that match the other filters: it may be short, or
    even empty, and `next` leads on to older ones until it is null.
    """
    refuse_unknown_parameters(request, EnforcementQuery)
    principal = request.auth.principal
    visible = Enforcement.objects.visible_to(principal)
    wanted = query.model_dump(exclude={"limit", "cursor"})
    rows, among = listing.enforcements(visible, **wanted)
    found, cursor = pages.newest_first(
        rows.select_related("rule", "revision"), query, key=UUID, among=among
    )
    items = [shown.shown(row, seen_by=principal) for row in found]
    return reply(EnforcementPage(items=items, next=pages.link(request, cursor), next_cursor=cursor))


@router.get(
    "/{enforcement_id}", auth=needs("rules.read"), response=documented(404, _200=EnforcementShown)
)
def get_enforcement(request: AuthenticatedRequest, enforcement_id: UUID) -> HttpResponse:
    """One answer. What was rejected is tried again by replaying its event for its rule."""
    visible = Enforcement.objects.visible_to(request.auth.principal)
    row = visible.select_related("rule", "revision").filter(pk=enforcement_id).first()
    if row is None:
        raise problems.not_found(f"No enforcement has the id {enforcement_id}")
    return reply(shown.shown(row, seen_by=request.auth.principal))
