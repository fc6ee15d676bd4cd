"""Investigations as a whole, and the tasks that may need one next."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from django.http import HttpResponse
from ninja import Query, Router
from pydantic import BaseModel, Field

from orchestrator.api import pages
from orchestrator.api.access import AuthenticatedRequest
from orchestrator.api.application import refuse_unknown_parameters
from orchestrator.api.replies import Out, documented, reply
from orchestrator.models import DLQDashboard, InvestigationQueue, TaskStaleness

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
    task_uuid: UUID | None
    namespace: str | None
    task_name: str | None
    execution_id: UUID | None
    dlq_reason: str
    original_state: str
    detail: str
    dlq_timestamp: datetime
    minutes_in_dlq: float
    priority_score: float = Field(
        description="The base of its reason, and a point for each minute, at most 10,000."
    )


class InvestigationList(BaseModel):
    items: list[Investigation]


class TaskHealth(Out):
    """An open task, how long it has been where it is, and how long it may be."""

    task_uuid: UUID
    namespace: str
    task_name: str
    template_version: str
    environment: str
    current_state: str
    priority: int
    correlation_id: str | None
    time_in_state_minutes: float
    staleness_threshold_minutes: float | None = Field(
        description="null: this state has no limit of its own."
    )
    task_age_minutes: float
    max_duration_minutes: float
    health_status: TaskStaleness.Health
    has_pending_entry: bool


class StalenessList(BaseModel):
    items: list[TaskHealth]


class TopQuery(BaseModel):
    """How many rows, from the top."""

    limit: int = Field(100, ge=1, le=pages.LIMIT_MAX)


class StalenessQuery(TopQuery):
    """Filters; all of them must hold."""

    health_status: TaskStaleness.Health | None = None


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


@router.get("/staleness", response=documented(422, _200=StalenessList))
def task_staleness(request: AuthenticatedRequest, query: Query[StalenessQuery]) -> HttpResponse:
    """Open tasks by how much of a limit they have used up: the stale ones first."""
    refuse_unknown_parameters(request, StalenessQuery)
    rows = TaskStaleness.objects.all()
    if query.health_status is not None:
        rows = rows.filter(health_status=query.health_status)
    return reply(StalenessList(items=pages.each(TaskHealth, rows[: query.limit])))
