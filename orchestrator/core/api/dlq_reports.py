"""Reports on all investigations."""

from __future__ import annotations

from django.http import HttpResponse
from ninja import Query, Router
from pydantic import BaseModel, Field

from orchestrator.core.api import pages
from orchestrator.core.api.access import AuthenticatedRequest, needs
from orchestrator.core.api.application import refuse_unknown_parameters
from orchestrator.core.api.dlq import EntryFilters
from orchestrator.core.api.replies import documented, reply
from orchestrator.core.models import InvestigationQueue
from orchestrator.core.models.dead_letters import Grouping
from orchestrator.core.shown import investigations as shown
from orchestrator.core.shown.investigations import (
    DLQHourStats,
    DLQNamespaceStats,
    DLQQueueStats,
    DLQReasonStats,
    DLQSubjectStats,
    Investigation,
)

router = Router(tags=["dead letters"])


StatsRow = DLQSubjectStats | DLQNamespaceStats | DLQQueueStats | DLQHourStats | DLQReasonStats


class DLQStats(BaseModel):
    items: list[StatsRow]


class InvestigationList(BaseModel):
    items: list[Investigation]


class TopQuery(BaseModel):
    """The number of rows, from the top."""

    limit: int = Field(100, ge=1, le=pages.LIMIT_MAX)


class StatsQuery(EntryFilters, TopQuery):
    """Filters, all of which must hold, and the rows wanted."""

    by: Grouping | None = Field(
        None, description="A row for each reason and subject, namespace, queue or hour."
    )


@router.get("/stats", auth=needs("dlq.read"), response=documented(422, _200=DLQStats))
def dlq_stats(request: AuthenticatedRequest, query: Query[StatsQuery]) -> HttpResponse:
    """Counts and times of the investigations of each reason.

    With `by=subject` the rows have the subject's kind and name in addition, with `by=namespace` the
    namespace of its template, with `by=queue` the queue of the letters, with `by=hour` the hour in
    which they were opened. Those with most pending entries then come first.
    """
    return reply(DLQStats(items=stats(request, query)))


@router.get(
    "/investigation-queue",
    auth=needs("dlq.read"),
    response=documented(422, _200=InvestigationList),
)
def investigation_queue(request: AuthenticatedRequest, query: Query[TopQuery]) -> HttpResponse:
    """Pending entries, most urgent first. The score grows by a point each minute."""
    return reply(InvestigationList(items=most_urgent(request, query)))


def stats(request: AuthenticatedRequest, query: StatsQuery) -> list[DLQReasonStats]:
    """Counts and times of each reason, or of its groups, of the entries for which the filters
    hold."""
    refuse_unknown_parameters(request, StatsQuery)
    is_filtered = query.model_dump(include=set(EntryFilters.model_fields), exclude_none=True)
    return shown.stats(
        seen_by=request.auth.principal,
        within=query.within if is_filtered else None,
        by=query.by,
        limit=query.limit,
    )


def most_urgent(request: AuthenticatedRequest, query: TopQuery) -> list[Investigation]:
    """The first rows of the queue."""
    refuse_unknown_parameters(request, TopQuery)
    principal = request.auth.principal
    rows = InvestigationQueue.objects.visible_to(principal)[: query.limit]
    return [shown.urgency(row, seen_by=principal) for row in rows]
