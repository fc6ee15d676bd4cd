"""Investigations of tasks, and the tasks that may need one next."""

from __future__ import annotations

from uuid import UUID

from django.http import HttpResponse
from ninja import Query, Router
from pydantic import BaseModel, Field

from orchestrator.core import clock, cursors
from orchestrator.core.api import pages
from orchestrator.core.api.access import AuthenticatedRequest, needs
from orchestrator.core.api.application import refuse_unknown_parameters
from orchestrator.core.api.dlq import EntryPageQuery
from orchestrator.core.api.dlq_reports import TopQuery
from orchestrator.core.api.replies import documented, reply
from orchestrator.core.models import DLQEntry
from orchestrator.core.shown.investigations import DLQDetail, whole
from orchestrator.workflows.api.tasks import known
from orchestrator.workflows.models import TaskStaleness
from orchestrator.workflows.shown import tasks as shown
from orchestrator.workflows.shown.tasks import TaskHealth, TaskStale

router = Router(tags=["dead letters"])


class StalenessList(BaseModel):
    items: list[TaskHealth]


class ForeseenList(BaseModel):
    items: list[TaskStale]


class StalenessQuery(TopQuery):
    """Filters; all of them must hold."""

    health_status: TaskStaleness.Health | None = None


class EntriesOfTask(pages.Page):
    items: list[DLQDetail]


class EntriesOfTaskQuery(EntryPageQuery):
    """The page of a listing."""

    limit: int = Field(10, ge=1, le=100, description="The most entries on this page.")


@router.get(
    "/task/{task_uuid}", auth=needs("dlq.read"), response=documented(404, 422, _200=EntriesOfTask)
)
def list_dlq_entries_of_task(
    request: AuthenticatedRequest, task_uuid: UUID, query: Query[EntriesOfTaskQuery]
) -> HttpResponse:
    """All entries of one task with their snapshots, newest first; at most one of them is
    pending."""
    refuse_unknown_parameters(request, EntriesOfTaskQuery)
    task = known(request, task_uuid, "dlq.read")
    entries, cursor = pages.newest_first(
        DLQEntry.objects.about(task.pk), query, key=cursors.whole_number, offset=query.offset
    )
    items = [whole(entry, seen_by=request.auth.principal) for entry in entries]
    return reply(EntriesOfTask(items=items, next=pages.link(request, cursor), next_cursor=cursor))


@router.get("/staleness", auth=needs("dlq.read"), response=documented(422, _200=StalenessList))
def task_staleness(request: AuthenticatedRequest, query: Query[StalenessQuery]) -> HttpResponse:
    """Open tasks by the share of a limit that they have used: stale ones first, and those with a
    pending entry last."""
    return reply(StalenessList(items=most_stale(request, query)))


def most_stale(request: AuthenticatedRequest, query: StalenessQuery) -> list[TaskHealth]:
    """The first of the open tasks."""
    refuse_unknown_parameters(request, StalenessQuery)
    rows = TaskStaleness.objects.visible_to(request.auth.principal)
    if query.health_status is not None:
        rows = rows.filter(health_status=query.health_status)
    return pages.each(TaskHealth, rows[: query.limit])


@router.get(
    "/staleness/dry-run", auth=needs("dlq.read"), response=documented(422, _200=ForeseenList)
)
def foresee_staleness(request: AuthenticatedRequest, query: Query[TopQuery]) -> HttpResponse:
    """The tasks that the next detection of stale tasks would find, and what it would do; nothing is
    done."""
    refuse_unknown_parameters(request, TopQuery)
    found = shown.foresee(limit=query.limit, seen_by=request.auth.principal, now=clock.now())
    return reply(ForeseenList(items=found))
