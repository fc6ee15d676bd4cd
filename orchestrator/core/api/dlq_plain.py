"""Investigations below `/v1`: the same rows and descriptions as below `/api/v1/dlq`, in arrays."""

from __future__ import annotations

from django.http import HttpResponse
from ninja import Query, Router
from pydantic import Field, RootModel

from orchestrator.core.api import dlq, dlq_reports, pages
from orchestrator.core.api.access import AuthenticatedRequest, needs
from orchestrator.core.api.application import refuse_unknown_parameters
from orchestrator.core.api.dlq_reports import StatsQuery, StatsRow, TopQuery
from orchestrator.core.api.replies import documented, reply
from orchestrator.core.models import DLQEntry
from orchestrator.core.shown import investigations as shown
from orchestrator.core.shown.investigations import DLQDetail, Investigation

router = Router(tags=["dead letters"])


class Entries(RootModel[list[DLQDetail]]):
    """Entries, each with everything that was stored."""


class Stats(RootModel[list[StatsRow]]):
    """Counts and times by reason, or by reason and group."""


class Queue(RootModel[list[Investigation]]):
    """Pending entries."""


class EntriesQuery(dlq.EntryQuery, dlq.Offset):
    """Filters; all of them must hold."""

    limit: int = Field(pages.LIMIT_DEFAULT, ge=1, le=pages.LIMIT_MAX)


@router.get("", auth=needs("dlq.read"), response=documented(422, _200=Entries))
def list_entries(request: AuthenticatedRequest, query: Query[EntriesQuery]) -> HttpResponse:
    """Entries, newest first, each with everything that was stored."""
    refuse_unknown_parameters(request, EntriesQuery)
    principal = request.auth.principal
    rows = query.within(DLQEntry.objects.visible_to(principal)).order_by("-pk")
    some = rows[query.offset : query.offset + query.limit]
    return reply(Entries([shown.whole(entry, seen_by=principal) for entry in some]))


@router.get("/stats", auth=needs("dlq.read"), response=documented(422, _200=Stats))
def list_stats(request: AuthenticatedRequest, query: Query[StatsQuery]) -> HttpResponse:
    """Counts and times of the investigations of each reason, or of each of its groups."""
    return reply(Stats(dlq_reports.stats(request, query)))


@router.get("/investigation-queue", auth=needs("dlq.read"), response=documented(422, _200=Queue))
def list_queue(request: AuthenticatedRequest, query: Query[TopQuery]) -> HttpResponse:
    """Pending entries, most urgent first."""
    return reply(Queue(dlq_reports.most_urgent(request, query)))


router.patch(
    "/entry/{dlq_entry_uuid}",
    auth=needs("dlq.change"),
    response=documented(404, 409, _200=DLQDetail),
)(dlq.change_dlq_entry)
