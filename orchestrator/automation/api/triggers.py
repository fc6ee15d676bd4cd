"""Trigger types and triggers: list, show, create; the next ticks of timers."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from django.db import transaction
from django.http import HttpResponse
from ninja import Body, Path, Query, Router
from pydantic import BaseModel, ConfigDict, Field

from orchestrator.automation import hook_paths, triggers
from orchestrator.automation.hooks.parameters import WEBHOOK
from orchestrator.automation.models import Trigger, TriggerType
from orchestrator.automation.problems import InvalidDocument
from orchestrator.automation.shown import triggers as shown
from orchestrator.automation.shown.triggers import TriggerShown, TriggerTypeShown
from orchestrator.core import authority, clock, cursors
from orchestrator.core.api import pages, problems
from orchestrator.core.api.access import AuthenticatedRequest, needs
from orchestrator.core.api.application import refuse_unknown_parameters
from orchestrator.core.api.problems import FieldProblem
from orchestrator.core.api.replies import documented, reply
from orchestrator.core.authority import Place
from orchestrator.core.frame import PACKS
from orchestrator.core.json_values import pointer

types = Router(tags=["triggers"])
router = Router(tags=["triggers"])

Ref = Annotated[pages.Text, Path()]


class TriggerTypePage(pages.Page):
    items: list[TriggerTypeShown]


class TriggerTypeQuery(pages.PageQuery):
    """Filters; all of them must hold."""

    retired: bool = Field(False, description="true to include those that are in no pack any more.")


class TriggerPage(pages.Page):
    items: list[TriggerShown]


class TriggerQuery(pages.PageQuery):
    """Filters; all of them must hold."""

    type: pages.Text | None = None


class Ticks(BaseModel):
    """Times at which a timer will fire, before its jitter."""

    items: list[datetime]


class NewTrigger(BaseModel):
    """A type with parameters."""

    model_config = ConfigDict(extra="forbid", strict=True)

    type: pages.Text = Field(min_length=1, max_length=130, examples=["core.cron"])
    parameters: dict[str, Any] = Field({}, examples=[{"cron": "0 5 * * *"}])


class TriggerDryRun(BaseModel):
    dry_run: bool = Field(
        False, description="true to check it all and answer 200 with the trigger as it would be."
    )


class TicksQuery(BaseModel):
    count: int = Field(10, ge=1, le=100)


@types.get("", auth=needs("triggers.read"), response=documented(422, _200=TriggerTypePage))
def list_types(request: AuthenticatedRequest, query: Query[TriggerTypeQuery]) -> HttpResponse:
    """Types of triggers, by name."""
    refuse_unknown_parameters(request, TriggerTypeQuery)
    rows = TriggerType.objects.visible_to(request.auth.principal).select_related("pack")
    if not query.retired:
        rows = rows.filter(retired_at__isnull=True)
    found, cursor = pages.by_name(rows, query, field="ref")
    items = [shown.type_shown(row) for row in found]
    link = pages.link(request, cursor)
    return reply(TriggerTypePage(items=items, next=link, next_cursor=cursor))


@types.get("/{ref}", auth=needs("triggers.read"), response=documented(404, _200=TriggerTypeShown))
def get_type(request: AuthenticatedRequest, ref: Ref) -> HttpResponse:
    """One type, with its schemas."""
    rows = TriggerType.objects.visible_to(request.auth.principal).select_related("pack")
    if (row := rows.filter(ref=ref).first()) is None:
        raise problems.not_found(f"No trigger type is called {ref[:140]!r}")
    return reply(shown.type_shown(row))


@router.get("", auth=needs("triggers.read"), response=documented(422, _200=TriggerPage))
def list_triggers(request: AuthenticatedRequest, query: Query[TriggerQuery]) -> HttpResponse:
    """Triggers, newest first. Equal parameters are one trigger, whichever rules name it."""
    refuse_unknown_parameters(request, TriggerQuery)
    visible = Trigger.objects.visible_to(request.auth.principal)
    if query.type is not None:
        visible = visible.filter(type__ref=query.type)
    rows = visible.select_related("type", "timer", "webhook")
    found, cursor = pages.newest_first(rows, query, key=cursors.whole_number)
    items = [shown.shown(row) for row in found]
    return reply(TriggerPage(items=items, next=pages.link(request, cursor), next_cursor=cursor))


@router.post(
    "",
    auth=needs("triggers.change"),
    response=documented(_201=TriggerShown, _200=TriggerShown),
)
def create_trigger(
    request: AuthenticatedRequest, new: Body[NewTrigger], query: Query[TriggerDryRun]
) -> HttpResponse:
    """The trigger of this type with these parameters: 201, or 200 if there is one. Rules make
    theirs; make one yourself to report events of a type with parameters before a rule asks them."""
    refuse_unknown_parameters(request, TriggerDryRun)
    caller = request.auth
    authority.require(caller.principal, "triggers.change", Place.of_ref(PACKS, new.type))
    if new.type == WEBHOOK:
        hook_paths.require_permission(new.parameters, principal=caller.principal)
    with transaction.atomic():
        is_there = triggers.exists(new.type, new.parameters)
        try:
            row = triggers.ensure(new.type, new.parameters, now=caller.now)
        except InvalidDocument as invalid:
            raise problems.invalid(
                FieldProblem(pointer=pointer(problem.where), message=problem.message)
                for problem in invalid.problems
            ) from None
        answer = shown.shown(row)
        if query.dry_run:
            transaction.set_rollback(True)
            return reply(answer)
    return reply(answer, status=200 if is_there else 201, location=f"{request.path}/{row.pk}")


@router.get(
    "/{trigger_id}", auth=needs("triggers.read"), response=documented(404, _200=TriggerShown)
)
def get_trigger(request: AuthenticatedRequest, trigger_id: pages.RowId) -> HttpResponse:
    """One trigger."""
    return reply(shown.shown(_known(request, trigger_id)))


@router.get(
    "/{trigger_id}/next", auth=needs("triggers.read"), response=documented(404, 422, _200=Ticks)
)
def get_next_ticks(
    request: AuthenticatedRequest, trigger_id: pages.RowId, query: Query[TicksQuery]
) -> HttpResponse:
    """The next ticks of a timer; none of another trigger."""
    refuse_unknown_parameters(request, TicksQuery)
    row = _known(request, trigger_id)
    return reply(Ticks(items=shown.next_ticks(row, query.count, now=clock.now())))


def _known(request: AuthenticatedRequest, trigger_id: int) -> Trigger:
    rows = Trigger.objects.visible_to(request.auth.principal).select_related(
        "type", "timer", "webhook"
    )
    if (row := rows.filter(pk=trigger_id).first()) is None:
        raise problems.not_found(f"No trigger has the number {trigger_id}")
    return row
