"""Investigations of tasks, and the tasks that may need one next."""

from __future__ import annotations

from uuid import UUID

from django.http import HttpResponse
from ninja import Query, Router
from pydantic import BaseModel

from orchestrator.core import clock
from orchestrator.core.api import pages
from orchestrator.core.api.access import AuthenticatedRequest, needs
from orchestrator.core.api.application import refuse_unknown_parameters
from orchestrator.core.api.dlq import DLQPage, EntryPageQuery, page_of
from orchestrator.core.api.dlq_reports import TopQuery
from orchestrator.core.api.replies import documented, reply
from orchestrator.core.models import DLQEntry
from orchestrator.workflows.api.tasks import known
from orchestrator.workflows.models import TaskStaleness
from orchestrator.workflows.shown import tasks as shown
from orchestrator.workflows.shown.tasks import TaskForeseen, TaskHealth

router = Router(tags=["dead letters"])


class StalenessList(BaseModel):
    items: list[TaskHealth]


class ForeseenList(BaseModel):
    items: list[TaskForeseen]


class StalenessQuery(TopQuery):
    """Filters; all of them must hold."""

    health_status: TaskStaleness.Health | None = None


@router.get(
    "/task/{task_uuid}", auth=needs("dlq.read"), response=documented(404, 422, _200=DLQPage)
)
def list_dlq_entries_of_task(
    request: AuthenticatedRequest, task_uuid: UUID, query: Query[EntryPageQuery]
) -> HttpResponse:
    """All entries of one task, newest first; at most one of them is pending."""
    refuse_unknown_parameters(request, EntryPageQuery)
    task = known(request, task_uuid, "dlq.read")
    return page_of(request, DLQEntry.objects.about(task.pk).without_contents(), query)


@router.get("/staleness", auth=needs("dlq.read"), response=documented(422, _200=StalenessList))
def task_staleness(request: AuthenticatedRequest, query: Query[StalenessQuery]) -> HttpResponse:
    """Open tasks by the share of a limit that they have used: stale ones first."""
    refuse_unknown_parameters(request, StalenessQuery)
    rows = TaskStaleness.objects.visible_to(request.auth.principal)
    if query.health_status is not None:
        rows = rows.filter(health_status=query.health_status)
    return reply(StalenessList(items=pages.each(TaskHealth, rows[: query.limit])))


@router.get(
    "/staleness/dry-run", auth=needs("dlq.read"), response=documented(422, _200=ForeseenList)
)
def foresee_staleness(request: AuthenticatedRequest, query: Query[TopQuery]) -> HttpResponse:
    """What the next detection of stale tasks would find and do; nothing is done."""
    refuse_unknown_parameters(request, TopQuery)
    found = shown.foresee(limit=query.limit, seen_by=request.auth.principal, now=clock.now())
    return reply(ForeseenList(items=found))
