"""Tasks below `/v1`: their investigations, and their steps, as below `/api/v1`, in arrays."""

from __future__ import annotations

from uuid import UUID

from django.http import HttpResponse
from ninja import Query, Router
from pydantic import BaseModel, RootModel

from orchestrator.core.api import problems
from orchestrator.core.api.access import AuthenticatedRequest, needs
from orchestrator.core.api.application import refuse_unknown_parameters
from orchestrator.core.api.replies import documented, reply
from orchestrator.core.models import DLQEntry
from orchestrator.core.shown.investigations import DLQDetail, whole
from orchestrator.workflows.api.investigations import StalenessQuery, most_stale
from orchestrator.workflows.api.steps import change_step, get_step
from orchestrator.workflows.api.tasks import known
from orchestrator.workflows.models import Step
from orchestrator.workflows.shown.steps import StepDetail, StepSummary, summary, views
from orchestrator.workflows.shown.tasks import TaskHealth

investigations = Router(tags=["dead letters"])
steps = Router(tags=["tasks"])

AT_ONCE = 1_000
"""The steps that one query describes: a database takes only so many parameters."""


class Health(RootModel[list[TaskHealth]]):
    """Open tasks."""


class NoParameters(BaseModel):
    """A filter that is ignored would show more than was asked for."""


class Steps(RootModel[list[StepSummary]]):
    """The steps of a task."""


@investigations.get(
    "/task/{task_uuid}", auth=needs("dlq.read"), response=documented(404, _200=DLQDetail)
)
def get_entry_of_task(request: AuthenticatedRequest, task_uuid: UUID) -> HttpResponse:
    """The newest entry of a task, with its snapshot. 404 if it has none."""
    task = known(request, task_uuid, "dlq.read")
    entry = DLQEntry.objects.about(task.pk).order_by("-pk").first()
    if entry is None:
        raise problems.not_found(f"Task {task_uuid} has no DLQ entry")
    return reply(whole(entry, seen_by=request.auth.principal))


@investigations.get("/staleness", auth=needs("dlq.read"), response=documented(422, _200=Health))
def list_health(request: AuthenticatedRequest, query: Query[StalenessQuery]) -> HttpResponse:
    """Open tasks by the share of a limit that they have used: stale ones first, and those with a
    pending entry last."""
    return reply(Health(most_stale(request, query)))


@steps.get(
    "/{task_uuid}/workflow_steps",
    auth=needs("tasks.read"),
    response=documented(404, 422, _200=Steps),
)
def list_steps(request: AuthenticatedRequest, task_uuid: UUID) -> HttpResponse:
    """All steps of a task, in the order of their creation."""
    refuse_unknown_parameters(request, NoParameters)
    task, caller = known(request, task_uuid), request.auth
    rows = list(Step.objects.without_contents().filter(task=task).order_by("pk"))
    described: list[StepSummary] = []
    for start in range(0, len(rows), AT_ONCE):
        some = rows[start : start + AT_ONCE]
        described += map(summary, views(some, now=caller.now, seen_by=caller.principal))
    return reply(Steps(described))


STEP = "/{task_uuid}/workflow_steps/{step_uuid}"
steps.get(STEP, auth=needs("tasks.read"), response=documented(404, _200=StepDetail))(get_step)
steps.patch(STEP, auth=needs("steps.repair"), response=documented(404, 409, _200=StepDetail))(
    change_step
)
