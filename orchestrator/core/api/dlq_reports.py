"""Investigations as a whole."""

from __future__ import annotations

from datetime import datetime
from typing import Self
from uuid import UUID

from django.http import HttpResponse
from ninja import Query, Router
from pydantic import BaseModel, Field, model_validator

from orchestrator.core.api import pages
from orchestrator.core.api.access import AuthenticatedRequest
from orchestrator.core.api.application import refuse_unknown_parameters
from orchestrator.core.api.dlq import named_by_kind
from orchestrator.core.api.replies import Out, documented, reply
from orchestrator.core.models import DLQDashboard, InvestigationQueue

router = Router(tags=["dead letters"])


class DLQReasonStats(Out):
    """How the investigations of one reason stand."""

    dlq_reason: str
    total_entries: int
    pending: int
    manually_resolved: int
    permanent_failures: int
    cancelled: int
    oldest_entry: datetime
    newest_entry: datetime
    avg_resolution_time_minutes: float | None = Field(description="Of those that are closed.")


class DLQStats(BaseModel):
    items: list[DLQReasonStats]


class Investigation(Out):
    """A pending entry, and how urgent it is."""

    dlq_entry_uuid: UUID
    subject_kind: str
    subject_id: UUID | None
    subject_name: str
    task_uuid: UUID | None = None
    execution_id: UUID | None = None
    dlq_reason: str
    original_state: str
    detail: str
    dlq_timestamp: datetime
    minutes_in_dlq: float
    priority_score: float = Field(
        description="The base of its reason, and a point for each minute, at most 10,000."
    )

    @model_validator(mode="after")
    def _name_the_subject(self) -> Self:
        return named_by_kind(self)


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
