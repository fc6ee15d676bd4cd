"""Workers: list, show, and orders of operators."""

from __future__ import annotations

from collections.abc import Callable

from django.http import HttpResponse
from ninja import Body, Query, Router
from pydantic import BaseModel, ConfigDict, Field

from orchestrator.core import authority, cursors, executions, fleet
from orchestrator.core.api import pages
from orchestrator.core.api.access import AuthenticatedRequest, needs
from orchestrator.core.api.application import refuse_unknown_parameters
from orchestrator.core.api.replies import documented, reply
from orchestrator.core.models import Worker, WorkerEvent
from orchestrator.core.shown import workers as shown
from orchestrator.core.shown.workers import WorkerEventOut, WorkerOut

router = Router(tags=["workers"])


class WorkerPage(pages.Page):
    """Workers, by name."""

    items: list[WorkerOut]


class WorkerQuery(pages.PageQuery):
    retired: bool = Field(False, description="true to include retired workers.")


class Order(BaseModel):
    """The reason of an order; stored with the caller."""

    model_config = ConfigDict(extra="forbid", strict=True)

    reason: str = Field(min_length=1, max_length=200, examples=["new disk"])


class WorkerEventPage(pages.Page):
    items: list[WorkerEventOut]


@router.get("", auth=needs("workers.read"), response=documented(422, _200=WorkerPage))
def list_workers(request: AuthenticatedRequest, query: Query[WorkerQuery]) -> HttpResponse:
    """Workers, by name."""
    refuse_unknown_parameters(request, WorkerQuery)
    visible = Worker.objects.visible_to(request.auth.principal)
    workers = visible if query.retired else visible.known()
    rows, cursor = pages.by_name(workers, query, field="name")
    return reply(
        WorkerPage(
            items=shown.all_of(rows, now=request.auth.now),
            next=pages.link(request, cursor),
            next_cursor=cursor,
        )
    )


@router.get("/{worker_id}", auth=needs("workers.read"), response=documented(404, _200=WorkerOut))
def get_worker(request: AuthenticatedRequest, worker_id: pages.RowId) -> HttpResponse:
    """One worker."""
    return _reply(request, _known(request, worker_id))


@router.get(
    "/{worker_id}/events",
    auth=needs("workers.read"),
    response=documented(404, 422, _200=WorkerEventPage),
)
def list_worker_events(
    request: AuthenticatedRequest, worker_id: pages.RowId, query: Query[pages.PageQuery]
) -> HttpResponse:
    """The events of a worker, newest first, with actor and reason."""
    refuse_unknown_parameters(request, pages.PageQuery)
    rows, cursor = pages.newest_first(
        WorkerEvent.objects.of(_known(request, worker_id).pk), query, key=cursors.whole_number
    )
    return reply(
        WorkerEventPage(
            items=pages.each(WorkerEventOut, rows),
            next=pages.link(request, cursor),
            next_cursor=cursor,
        )
    )


@router.post(
    "/{worker_id}/cordon",
    auth=needs("workers.order"),
    response=documented(404, 422, _200=WorkerOut),
)
def cordon_worker(
    request: AuthenticatedRequest, worker_id: pages.RowId, order: Body[Order]
) -> HttpResponse:
    """Give it no more work, except pinned executions. It continues its work. Safe to repeat."""
    return _ordered(request, worker_id, order, fleet.cordon)


@router.post(
    "/{worker_id}/uncordon",
    auth=needs("workers.order"),
    response=documented(404, 422, _200=WorkerOut),
)
def uncordon_worker(
    request: AuthenticatedRequest, worker_id: pages.RowId, order: Body[Order]
) -> HttpResponse:
    """Give it work again; after a drain, once it has started again."""
    return _ordered(request, worker_id, order, fleet.uncordon)


@router.post(
    "/{worker_id}/drain",
    auth=needs("workers.order"),
    response=documented(404, 409, 422, _200=WorkerOut),
)
def drain_worker(
    request: AuthenticatedRequest, worker_id: pages.RowId, order: Body[Order]
) -> HttpResponse:
    """Cordon it; it finishes its running executions and exits. Waiting ones move elsewhere now.
    409 if it is retired."""
    return _ordered(request, worker_id, order, executions.drain_worker)


@router.post(
    "/{worker_id}/retire",
    auth=needs("workers.retire"),
    response=documented(404, 409, 422, _200=WorkerOut),
)
def retire_worker(
    request: AuthenticatedRequest, worker_id: pages.RowId, order: Body[Order]
) -> HttpResponse:
    """Remove the queues of a worker that will not come back. 409 while it is up or holds work."""
    return _ordered(request, worker_id, order, fleet.retire, "workers.retire")


def _ordered(
    request: AuthenticatedRequest,
    worker_id: int,
    order: Order,
    verb: Callable[..., Worker],
    permission: str = "workers.order",
) -> HttpResponse:
    caller = request.auth
    _known(request, worker_id, permission)
    worker = verb(worker_id=worker_id, actor=caller.name, reason=order.reason, now=caller.now)
    return _reply(request, worker)


def _known(
    request: AuthenticatedRequest, worker_id: int, permission: str = "workers.read"
) -> Worker:
    worker = Worker.objects.filter(pk=worker_id).first()
    if worker is None or not authority.may(request.auth.principal, permission, worker.place):
        raise fleet.UnknownWorker(f"No worker has the id {worker_id}")
    return worker


def _reply(request: AuthenticatedRequest, worker: Worker) -> HttpResponse:
    return reply(shown.one(worker, now=request.auth.now))
