"""Queues: list, show, apply, pause, resume."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from django.http import HttpResponse
from ninja import Body, Header, Path, Query, Router
from pydantic import BaseModel, ConfigDict, Field

from orchestrator.core.api import pages, problems
from orchestrator.core.api.access import AuthenticatedRequest, needs
from orchestrator.core.api.application import refuse_unknown_parameters
from orchestrator.core.api.problems import FieldProblem
from orchestrator.core.api.replies import documented, reply
from orchestrator.core.json_values import pointer
from orchestrator.queues import changes, definitions
from orchestrator.queues.changes import CREATED, InvalidQueue
from orchestrator.queues.models import Ticket, WorkQueue
from orchestrator.queues.models.queues import REASON_MAX
from orchestrator.queues.shown import queues as shown
from orchestrator.queues.shown import tickets
from orchestrator.queues.shown.queues import QueueDetail, QueueSummary
from orchestrator.queues.shown.tickets import TicketOut

router = Router(tags=["queues"])

Name = Annotated[pages.Text, Path()]
RELATED = ("action", "pack", "gate")


class QueuePage(pages.Page):
    items: list[QueueSummary]


class QueueQuery(pages.PageQuery):
    """Filters; all of them must hold."""

    retired: bool = Field(False, description="true to include those out of use.")


class TicketPage(pages.Page):
    items: list[TicketOut]


class TicketQuery(pages.PageQuery):
    """Filters; all of them must hold."""

    untold: bool = Field(False, description="true for those without an answer yet.")


class Why(BaseModel):
    """The reason why it is paused or resumed."""

    model_config = ConfigDict(extra="forbid", strict=True)

    reason: pages.Text = Field(min_length=1, max_length=REASON_MAX)


@router.get("", auth=needs("queues.read"), response=documented(422, _200=QueuePage))
def list_queues(request: AuthenticatedRequest, query: Query[QueueQuery]) -> HttpResponse:
    """Queues with their figures, by name. The default queue is none of them."""
    refuse_unknown_parameters(request, QueueQuery)
    rows = WorkQueue.objects.select_related(*RELATED)
    if not query.retired:
        rows = rows.filter(retired_at__isnull=True)
    found, cursor = pages.by_name(rows, query, field="name")
    items = shown.all_of(found, now=request.auth.now)
    return reply(QueuePage(items=items, next=pages.link(request, cursor), next_cursor=cursor))


@router.get("/{name}", auth=needs("queues.read"), response=documented(404, _200=QueueDetail))
def get_queue(request: AuthenticatedRequest, name: Name) -> HttpResponse:
    """One queue with its figures, its definition, and what happened to it last. The header ETag has
    its revision."""
    return _reply(request, name)


@router.put(
    "/{name}",
    auth=needs("queues.change"),
    response=documented(409, _201=QueueDetail, _200=QueueDetail),
)
def apply_queue(
    request: AuthenticatedRequest,
    name: Name,
    document: Body[dict[str, Any]],
    if_match: Annotated[str | None, Header(alias="If-Match")] = None,
) -> HttpResponse:
    """Have the queue be as this says, as a queue file does; 201 if there was none. Keys that are
    left out have their defaults. With If-Match, 409 unless that is its revision; 0 for none yet. To
    make or change a gate, the caller must be permitted to run every action that it runs."""
    caller = request.auth
    source = definitions.source_of(document, name=name)
    definitions.check_queue(source)
    if document.get("name", name) != name:
        source.problem(("name",), f"name: expected {name!r}, as in the path")
    if source.problems:
        raise problems.invalid(
            FieldProblem(pointer=pointer(each.where), message=each.message)
            for each in source.problems
        )
    try:
        applied = changes.apply(
            definitions.new_queue(source.value),
            actor=caller.name,
            now=caller.now,
            revision=_revision(if_match),
            principal=caller.principal,
        )
    except InvalidQueue as invalid:
        raise problems.invalid(
            FieldProblem(pointer=pointer(where), message=message)
            for where, message in invalid.problems
        ) from None
    return _reply(request, name, status=201 if applied.outcome == CREATED else 200)


@router.post(
    "/{name}/pause", auth=needs("queues.change"), response=documented(404, 409, _200=QueueDetail)
)
def pause_queue(request: AuthenticatedRequest, name: Name, why: Body[Why]) -> HttpResponse:
    """Start nothing of it from now on; it accepts all the same. Safe to repeat."""
    return _ordered(request, name, why, changes.pause)


@router.post(
    "/{name}/resume", auth=needs("queues.change"), response=documented(404, 409, _200=QueueDetail)
)
def resume_queue(request: AuthenticatedRequest, name: Name, why: Body[Why]) -> HttpResponse:
    """Start its work again. Safe to repeat."""
    return _ordered(request, name, why, changes.resume)


@router.get(
    "/{name}/tickets", auth=needs("queues.read"), response=documented(404, 422, _200=TicketPage)
)
def list_tickets(
    request: AuthenticatedRequest, name: Name, query: Query[TicketQuery]
) -> HttpResponse:
    """The task messages of its gate, the newest first: none without a gate."""
    refuse_unknown_parameters(request, TicketQuery)
    rows = Ticket.objects.filter(gate__queue=changes.find(name)).select_related("execution")
    if query.untold:
        rows = rows.untold()
    found, cursor = pages.newest_first(rows, query, key=int)
    items = tickets.all_of(found)
    return reply(TicketPage(items=items, next=pages.link(request, cursor), next_cursor=cursor))


def _ordered(
    request: AuthenticatedRequest, name: str, why: Why, verb: Callable[..., WorkQueue]
) -> HttpResponse:
    verb(name, reason=why.reason, actor=request.auth.name, now=request.auth.now)
    return _reply(request, name)


def _reply(request: AuthenticatedRequest, name: str, *, status: int = 200) -> HttpResponse:
    queue = changes.find(name)
    response = reply(shown.detail(queue, now=request.auth.now), status=status)
    response["ETag"] = f'"{queue.revision}"'
    return response


def _revision(if_match: str | None) -> int | None:
    """The revision in an If-Match; None without one."""
    if if_match is None:
        return None
    text = if_match.strip().strip('"')
    if not text.isascii() or not text.isdigit() or len(text) > 10:
        message = f'expected a revision such as "3", found {if_match[:40]!r}'
        raise problems.invalid([FieldProblem(pointer="If-Match", message=message)])
    return int(text)
