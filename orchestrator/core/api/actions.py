"""Actions, which executions run."""

from __future__ import annotations

from typing import Annotated

from django.http import HttpResponse
from ninja import Path, Query, Router

from orchestrator.core.api import pages, problems
from orchestrator.core.api.access import AuthenticatedRequest, needs
from orchestrator.core.api.application import refuse_unknown_parameters
from orchestrator.core.api.pages import Text
from orchestrator.core.api.replies import documented, reply
from orchestrator.core.models import Action
from orchestrator.core.shown import actions as shown
from orchestrator.core.shown.actions import ActionDetail, ActionSummary

router = Router(tags=["actions"])


class ActionPage(pages.Page):
    """Actions, sorted by reference."""

    items: list[ActionSummary]


@router.get("", auth=needs("actions.read"), response=documented(422, _200=ActionPage))
def list_actions(request: AuthenticatedRequest, query: Query[pages.PageQuery]) -> HttpResponse:
    """Actions, sorted by reference."""
    refuse_unknown_parameters(request, pages.PageQuery)
    actions = Action.objects.visible_to(request.auth.principal).select_related("pack")
    rows, cursor = pages.by_name(actions, query, field="ref")
    return reply(
        ActionPage(
            items=pages.each(ActionSummary, rows),
            next=pages.link(request, cursor),
            next_cursor=cursor,
        )
    )


@router.get("/{ref}", auth=needs("actions.read"), response=documented(404, _200=ActionDetail))
def get_action(request: AuthenticatedRequest, ref: Annotated[Text, Path()]) -> HttpResponse:
    """One action, with the schema of its parameters."""
    principal = request.auth.principal
    rows = Action.objects.visible_to(principal).select_related("pack")
    action = rows.filter(ref=ref).first()
    if action is None:
        raise problems.not_found(f"No action is called {ref[:130]!r}")
    return reply(shown.detail(action, seen_by=principal))
