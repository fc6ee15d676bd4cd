"""Workers: who is there, how fresh, how busy."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from django.http import HttpResponse
from ninja import Path, Router
from pydantic import BaseModel, Field

from orchestrator import fleet
from orchestrator.api import problems
from orchestrator.api.access import AuthenticatedRequest
from orchestrator.api.replies import documented, reply
from orchestrator.models import Execution, Worker

router = Router(tags=["workers"])


class WorkerOut(BaseModel):
    """A worker. Ages are by the database's clock, which decides who is stale."""

    id: int
    name: str
    status: Worker.Status
    status_reason: str
    incarnation: int = Field(description="How many lives its process has had.")
    capacity: int = Field(description="How many actions it runs at once.")
    load: int = Field(description="How many executions it holds: waiting for it, or running.")
    runtimes: list[str]
    labels: dict[str, Any]
    registered_at: datetime | None
    heartbeat_at: datetime | None
    heartbeat_age_seconds: float | None
    fresh: bool = Field(description="Whether its heartbeat is younger than the staleness window.")
    eligible: bool = Field(description="Active, fresh and not cordoned: may be given work.")
    failed_checks: dict[str, str] = Field(description="What each check that fails has found.")
    cordoned: bool = Field(description="Given nothing but what is pinned to it.")
    cordon_reason: str
    gone_at: datetime | None = Field(description="Since when it has left, or is lost.")
    retired_at: datetime | None = Field(description="Since when it has no queues.")
    host: str
    pid: int | None
    version: str


class WorkerList(BaseModel):
    """All workers, by name."""

    items: list[WorkerOut]


@router.get("", response=documented(_200=WorkerList))
def list_workers(request: AuthenticatedRequest) -> HttpResponse:
    """All workers, by name."""
    load = Execution.objects.load_by_worker()
    workers = Worker.objects.all()
    items = [
        _shown(worker, load=load.get(worker.pk, 0), now=request.auth.now) for worker in workers
    ]
    return reply(WorkerList.model_construct(items=items))


@router.get("/{worker_id}", response=documented(404, _200=WorkerOut))
def get_worker(
    request: AuthenticatedRequest, worker_id: Annotated[int, Path(ge=1, lt=2**63)]
) -> HttpResponse:
    """One worker."""
    worker = Worker.objects.filter(pk=worker_id).first()
    if worker is None:
        raise problems.not_found(f"No worker has the id {worker_id}")
    load = Execution.objects.held_by(worker).count()
    return reply(_shown(worker, load=load, now=request.auth.now))


def _shown(worker: Worker, *, load: int, now: datetime) -> WorkerOut:
    return WorkerOut(**fleet.describe(worker, now=now), load=load)
