"""Investigations as a whole."""

from __future__ import annotations

from django.http import HttpResponse
from ninja import Query, Router
from pydantic import BaseModel, Field

from orchestrator.core.api import pages
from orchestrator.core.api.access import AuthenticatedRequest
from orchestrator.core.api.application import refuse_unknown_parameters
from orchestrator.core.api.replies import documented, reply
from orchestrator.core.models import DLQDashboard, InvestigationQueue
from orchestrator.core.shown.investigations import DLQReasonStats, Investigation

router = Router(tags=["dead letters"])


class DLQStats(BaseModel):
    items: list[DLQReasonStats]


class InvestigationList(BaseModel):
    items: list[Investigation]


class TopQuery(BaseModel):
    """How many rows, from the top."""

    limit: int = Field(100, ge=1, le=pages.LIMIT_MAX)


@router.get("/stats", response=documented(_200=DLQStats))
def dlq_stats(request: AuthenticatedRequest) -> HttpResponse:
    """How the investigations of each reason stand."""
    return reply(DLQStats(items=pages.each(DLQReasonStats, DLQDashboard.objects.all())))


@router.get("/investigation-queue", response=documented(422, _200=InvestigationList))
def investigation_queue(request: AuthenticatedRequest, query: Query[TopQuery]) -> HttpResponse:
    """What to look into next: the base of its reason, and a point for each minute."""
    refuse_unknown_parameters(request, TopQuery)
    rows = InvestigationQueue.objects.all()[: query.limit]
    return reply(InvestigationList(items=pages.each(Investigation, rows)))
