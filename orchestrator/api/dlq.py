"""The dead letters that were drained."""

from __future__ import annotations

import base64
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from django.http import HttpResponse
from ninja import Path, Query, Router
from pydantic import Field

from orchestrator.api import pages, problems
from orchestrator.api.access import AuthenticatedRequest
from orchestrator.api.application import refuse_unknown_parameters
from orchestrator.api.replies import Out, documented, reply
from orchestrator.models import DLQEntry

router = Router(tags=["dead letters"])

ID_MAX = 2**63 - 1
UNLISTED = ("headers", "x_death", "snapshot", "raw_body")


class DLQSummary(Out):
    """A dead letter as listings show it."""

    id: int
    execution_id: UUID | None
    attempt: int | None
    reason: DLQEntry.Reason
    detail: str
    original_exchange: str
    original_queue: str
    original_routing_key: str
    created_at: datetime


class DLQDetail(DLQSummary):
    """A dead letter with all that was kept of it."""

    headers: Any
    x_death: Any = Field(description="The broker's own account of it.")
    snapshot: Any = Field(description="The execution as it was when the letter was drained.")
    raw_body: str | None = Field(description="Base64; kept when it could not be read.")


class DLQPage(pages.Page):
    items: list[DLQSummary]


class DLQQuery(pages.PageQuery):
    """Filters; all of them must hold."""

    reason: DLQEntry.Reason | None = None
    execution_id: UUID | None = None


@router.get("", response=documented(422, _200=DLQPage))
def list_dlq_entries(request: AuthenticatedRequest, query: Query[DLQQuery]) -> HttpResponse:
    """Dead letters, newest first."""
    refuse_unknown_parameters(request, DLQQuery)
    rows = DLQEntry.objects.defer(*UNLISTED)
    if query.reason is not None:
        rows = rows.filter(reason=query.reason)
    if query.execution_id is not None:
        rows = rows.filter(execution_id=query.execution_id)
    found, cursor = pages.newest_first(rows, query, key=_id)
    items = pages.each(DLQSummary, found)
    return reply(DLQPage(items=items, next=pages.link(request, cursor), next_cursor=cursor))


@router.get("/{entry_id}", response=documented(404, _200=DLQDetail))
def get_dlq_entry(
    request: AuthenticatedRequest, entry_id: Annotated[int, Path(ge=1, le=ID_MAX)]
) -> HttpResponse:
    """One dead letter, whole."""
    entry = DLQEntry.objects.filter(pk=entry_id).first()
    if entry is None:
        raise problems.not_found(f"No dead letter has the id {entry_id}")
    body = None if entry.raw_body is None else base64.b64encode(entry.raw_body).decode()
    return reply(
        DLQDetail.model_construct(
            **dict(DLQSummary.model_validate(entry)),
            headers=entry.headers,
            x_death=entry.x_death,
            snapshot=entry.snapshot,
            raw_body=body,
        )
    )


def _id(text: str) -> int:
    number = int(text)
    if not 0 < number <= ID_MAX:
        raise ValueError
    return number
