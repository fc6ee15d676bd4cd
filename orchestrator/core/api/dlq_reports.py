"""Reports on all investigations."""

from __future__ import annotations

from django.http import HttpResponse
from ninja import Query, Router
from pydantic import BaseModel, Field

from orchestrator.core.api import pages
from orchestrator.core.api.access import AuthenticatedRequest, needs
from orchestrator.core.api.application import refuse_unknown_parameters
from orchestrator.core.api.replies import documented, reply
from orchestrator.core.models import InvestigationQueue
from orchestrator.core.shown import investigations as shown
from orchestrator.core.shown.investigations import DLQReasonStats, Investigation

router = Router(tags=["dead letters"])


class DLQStats(BaseModel):
    items: list[DLQReasonStats]


class InvestigationList(BaseModel):
    items: list[Investigation]


class TopQuery(BaseModel):
    """The number of rows, from the top."""

    limit: int = Field(100, ge=1, le=pages.LIMIT_MAX)


@router.get("/stats", auth=needs("dlq.read"), response=documented(_200=DLQStats))
def dlq_stats(request: AuthenticatedRequest) -> HttpResponse:
    """Counts and times of the investigations of each reason."""
    return reply(DLQStats(items=shown.stats(seen_by=request.auth.principal)))


@router.get(
    "/investigation-queue",
    auth=needs("dlq.read"),
    response=documented(422, _200=InvestigationList),
)
def investigation_queue(request: AuthenticatedRequest, query: Query[TopQuery]) -> HttpResponse:
    """Pending entries, most urgent first. The score grows by a point each minute."""
    refuse_unknown_parameters(request, TopQuery)
    principal = request.auth.principal
    rows = InvestigationQueue.objects.visible_to(principal)[: query.limit]
    return reply(InvestigationList(items=[shown.urgency(row, seen_by=principal) for row in rows]))
