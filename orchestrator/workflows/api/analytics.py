"""The performance of templates and their steps."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TypeVar

from django.http import HttpResponse
from ninja import Query, Router
from pydantic import BaseModel, Field

from orchestrator.core import authority
from orchestrator.core.api import pages
from orchestrator.core.api.access import AuthenticatedRequest, needs
from orchestrator.core.api.application import refuse_unknown_parameters
from orchestrator.core.api.replies import documented, reply
from orchestrator.core.authority import Place
from orchestrator.core.frame import NAMESPACES
from orchestrator.core.shown.documents import Shown
from orchestrator.workflows import analytics
from orchestrator.workflows.analytics import StepPerformance
from orchestrator.workflows.analytics import TemplatePerformance as Numbers

Row = TypeVar("Row", StepPerformance, Numbers)

router = Router(tags=["analytics"])

LONGEST_HOURS = 24 * 90


class StepOut(Shown):
    """One step of a template. All workers of a batch are one step."""

    step: str
    steps: int = Field(description="The number of these steps, one in each task or batch.")
    completed: int
    failed: int
    retries: int = Field(description="Executions after the first of each step.")
    executions: int = Field(description="Executions that have ended, with any status.")
    failed_executions: int
    failure_rate: float = Field(description="Share of the executions that have ended; 1 is all.")
    duration_p50_seconds: float | None = Field(
        description="From the claim to the end, of completed executions."
    )
    duration_p95_seconds: float | None


class TemplateOut(Shown):
    """The tasks of one template."""

    namespace: str
    name: str
    version: str
    tasks: int
    completed: int
    failed: int = Field(description="In `error`, or blocked by failures.")
    failure_rate: float = Field(description="Share of those that completed or failed; 1 is all.")
    duration_p50_seconds: float | None = Field(
        description="From the request to the end, of completed tasks."
    )
    duration_p95_seconds: float | None


class TemplatePerformance(TemplateOut):
    """The tasks of one template, and its steps."""

    steps: list[StepOut]


class Performance(BaseModel):
    """The performance of the tasks that were requested since then."""

    since: datetime
    items: list[TemplatePerformance]


class Bottleneck(StepOut):
    """A step, and its template."""

    namespace: str
    template: str
    version: str


class Bottlenecks(BaseModel):
    """The worst steps first, of the tasks that were requested since then."""

    since: datetime
    slowest: list[Bottleneck] = Field(description="Sorted by the 95th percentile.")
    most_retried: list[Bottleneck]
    most_failing: list[Bottleneck] = Field(description="Sorted by failure rate, then failures.")


class PerformanceQuery(BaseModel):
    """Filters of the tasks."""

    hours: float = Field(
        24, gt=0, le=LONGEST_HOURS, description="Tasks requested within these hours."
    )
    namespace: pages.Text | None = None
    name: pages.Text | None = Field(None, description="The name of a template.")


class BottleneckQuery(BaseModel):
    """Filters of the tasks, and the number of steps."""

    hours: float = Field(
        24, gt=0, le=LONGEST_HOURS, description="Tasks requested within these hours."
    )
    limit: int = Field(10, ge=1, le=100, description="The most steps in each list.")


@router.get(
    "/performance", auth=needs("analytics.read"), response=documented(422, _200=Performance)
)
def performance(request: AuthenticatedRequest, query: Query[PerformanceQuery]) -> HttpResponse:
    """Numbers, durations, failures and retries of each template and each of its steps."""
    refuse_unknown_parameters(request, PerformanceQuery)
    since = request.auth.now - timedelta(hours=query.hours)
    steps: dict[int, list[StepOut]] = {}
    for step in _visible(request, analytics.steps(since=since)):
        steps.setdefault(step.template_id, []).append(StepOut.model_validate(step))
    items = [
        TemplatePerformance(
            **dict(TemplateOut.model_validate(row)), steps=steps.get(row.template_id, [])
        )
        for row in _visible(request, analytics.templates(since=since))
        if query.namespace in (None, row.namespace) and query.name in (None, row.name)
    ]
    return reply(Performance(since=since, items=items))


@router.get(
    "/bottlenecks", auth=needs("analytics.read"), response=documented(422, _200=Bottlenecks)
)
def bottlenecks(request: AuthenticatedRequest, query: Query[BottleneckQuery]) -> HttpResponse:
    """The slowest, most retried and most failing steps."""
    refuse_unknown_parameters(request, BottleneckQuery)
    since = request.auth.now - timedelta(hours=query.hours)
    steps = _visible(request, analytics.steps(since=since))

    def worst(key: Callable[[StepPerformance], tuple[float, ...]]) -> list[Bottleneck]:
        ranked = sorted((step for step in steps if key(step)[0] > 0), key=key, reverse=True)
        return pages.each(Bottleneck, ranked[: query.limit])

    return reply(
        Bottlenecks(
            since=since,
            slowest=worst(lambda step: (step.duration_p95_seconds or 0,)),
            most_retried=worst(lambda step: (step.retries,)),
            most_failing=worst(lambda step: (step.failure_rate, step.failed_executions)),
        )
    )


def _visible(request: AuthenticatedRequest, rows: list[Row]) -> list[Row]:
    """Those of namespaces for which the caller has the permission."""
    reach = authority.reach(request.auth.principal, "analytics.read")
    return [row for row in rows if reach.covers(Place(NAMESPACES, row.namespace))]
