"""Workers: who is there, how fresh, how busy; and what an operator decides of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from django.http import HttpResponse
from ninja import Body, Path, Query, Router
from pydantic import BaseModel, ConfigDict, Field

from orchestrator.core import cursors, executions, fleet
from orchestrator.core.api import pages
from orchestrator.core.api.access import AuthenticatedRequest
from orchestrator.core.api.application import refuse_unknown_parameters
from orchestrator.core.api.replies import documented, reply
from orchestrator.core.models import Worker, WorkerEvent
from orchestrator.core.shown import workers as shown
from orchestrator.core.shown.workers import WorkerEventOut, WorkerOut

router = Router(tags=["workers"])


class WorkerList(BaseModel):
    """Workers, by name."""

    items: list[WorkerOut]


class WorkerQuery(BaseModel):
    retired: bool = Field(False, description="true: also those that were retired.")


class Order(BaseModel):
    """Why something is done to a worker; kept with who asked for it."""

    model_config = ConfigDict(extra="forbid", strict=True)

    reason: str = Field(min_length=1, max_length=200, examples=["new disk"])


class WorkerEventPage(pages.Page):
    items: list[WorkerEventOut]


WorkerId = Annotated[int, Path(ge=1, lt=2**63)]


@router.get("", response=documented(422, _200=WorkerList))
def list_workers(request: AuthenticatedRequest, query: Query[WorkerQuery]) -> HttpResponse:
    """Workers, by name; all of them on one page."""
    refuse_unknown_parameters(request, WorkerQuery)
    workers = Worker.objects.all() if query.retired else Worker.objects.known()
    items = shown.all_of(workers, now=request.auth.now)
    return reply(WorkerList.model_construct(items=items))


@router.get("/{worker_id}", response=documented(404, _200=WorkerOut))
def get_worker(request: AuthenticatedRequest, worker_id: WorkerId) -> HttpResponse:
    """One worker."""
    return _reply(request, _found(worker_id))


@router.get("/{worker_id}/events", response=documented(404, 422, _200=WorkerEventPage))
def list_worker_events(
    request: AuthenticatedRequest, worker_id: WorkerId, query: Query[pages.PageQuery]
) -> HttpResponse:
    """What happened to a worker, newest first: by whom, and why."""
    refuse_unknown_parameters(request, pages.PageQuery)
    rows, cursor = pages.newest_first(
        WorkerEvent.objects.of(_found(worker_id).pk), query, key=cursors.whole_number
    )
    return reply(
        WorkerEventPage(
            items=pages.each(WorkerEventOut, rows),
            next=pages.link(request, cursor),
            next_cursor=cursor,
        )
    )


@router.post("/{worker_id}/cordon", response=documented(404, 422, _200=WorkerOut))
def cordon_worker(
    request: AuthenticatedRequest, worker_id: WorkerId, order: Body[Order]
) -> HttpResponse:
    """Give it nothing more but what is pinned to it. What it has goes on. Repeating it is safe."""
    return _ordered(request, worker_id, order, fleet.cordon)


@router.post("/{worker_id}/uncordon", response=documented(404, 422, _200=WorkerOut))
def uncordon_worker(
    request: AuthenticatedRequest, worker_id: WorkerId, order: Body[Order]
) -> HttpResponse:
    """Let it have work again; after a drain, in its next life."""
    return _ordered(request, worker_id, order, fleet.uncordon)


@router.post("/{worker_id}/drain", response=documented(404, 422, _200=WorkerOut))
def drain_worker(
    request: AuthenticatedRequest, worker_id: WorkerId, order: Body[Order]
) -> HttpResponse:
    """Cordon it and have it finish what it runs, and exit. What waits for it goes elsewhere now."""
    return _ordered(request, worker_id, order, executions.drain_worker)


@router.post("/{worker_id}/retire", response=documented(404, 409, 422, _200=WorkerOut))
def retire_worker(
    request: AuthenticatedRequest, worker_id: WorkerId, order: Body[Order]
) -> HttpResponse:
    """Remove the queues of a worker that is gone for good. 409 while it is up or holds work."""
    return _ordered(request, worker_id, order, fleet.retire)


def _ordered(
    request: AuthenticatedRequest, worker_id: int, order: Order, verb: Callable[..., Worker]
) -> HttpResponse:
    caller = request.auth
    worker = verb(worker_id=worker_id, actor=caller.name, reason=order.reason, now=caller.now)
    return _reply(request, worker)


def _found(worker_id: int) -> Worker:
    worker = Worker.objects.filter(pk=worker_id).first()
    if worker is None:
        raise fleet.UnknownWorker(f"No worker has the id {worker_id}")
    return worker


def _reply(request: AuthenticatedRequest, worker: Worker) -> HttpResponse:
    return reply(shown.one(worker, now=request.auth.now))
