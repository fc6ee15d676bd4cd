"""How templates and their steps do."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from django.http import HttpResponse
from ninja import Query, Router
from pydantic import BaseModel, Field

from orchestrator.core.api import pages
from orchestrator.core.api.access import AuthenticatedRequest
from orchestrator.core.api.application import refuse_unknown_parameters
from orchestrator.core.api.replies import documented, reply
from orchestrator.core.shown.values import Shown
from orchestrator.workflows import analytics
from orchestrator.workflows.analytics import StepPerformance

router = Router(tags=["analytics"])

LONGEST_HOURS = 24 * 90


class StepOut(Shown):
    """One step of a template. All workers of a batch are one step."""

    step: str
    steps: int = Field(description="How many of it there are, one in each task or batch.")
    completed: int
    failed: int
    retries: int = Field(description="Executions after the first one of a step.")
    executions: int = Field(description="Those that have ended, whichever way.")
    failed_executions: int
    failure_rate: float = Field(description="Of the executions that have ended; 1 is all.")
    duration_p50_seconds: float | None = Field(
        description="From the claim to the end of an execution that completed."
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
    failure_rate: float = Field(description="Of those that completed or failed; 1 is all.")
    duration_p50_seconds: float | None = Field(
        description="From the request to the end, of those that completed."
    )
    duration_p95_seconds: float | None


class TemplatePerformance(TemplateOut):
    """The tasks of one template, and its steps."""

    steps: list[StepOut]


class Performance(BaseModel):
    """Of the tasks that were requested since then."""

    since: datetime
    items: list[TemplatePerformance]


class Bottleneck(StepOut):
    """A step, and whose it is."""

    namespace: str
    template: str
    version: str


class Bottlenecks(BaseModel):
    """The steps that stand out, the worst first, of tasks that were requested since then."""

    since: datetime
    slowest: list[Bottleneck] = Field(description="By the 95th percentile.")
    most_retried: list[Bottleneck]
    most_failing: list[Bottleneck] = Field(description="By failure rate, then failures.")


class PerformanceQuery(BaseModel):
    """Which tasks."""

    hours: float = Field(24, gt=0, le=LONGEST_HOURS, description="Requested within these.")
    namespace: pages.Text | None = None
    name: pages.Text | None = Field(None, description="Of a template.")


class BottleneckQuery(BaseModel):
    """Which tasks, and how many steps."""

    hours: float = Field(24, gt=0, le=LONGEST_HOURS, description="Requested within these.")
    limit: int = Field(10, ge=1, le=100, description="Most steps in each list.")


@router.get("/performance", response=documented(422, _200=Performance))
def performance(request: AuthenticatedRequest, query: Query[PerformanceQuery]) -> HttpResponse:
    """Numbers, durations, failures and retries of each template and each of its steps."""
    refuse_unknown_parameters(request, PerformanceQuery)
    since = request.auth.now - timedelta(hours=query.hours)
    steps: dict[int, list[StepOut]] = {}
    for step in analytics.steps(since=since):
        steps.setdefault(step.template_id, []).append(StepOut.model_validate(step))
    items = [
        TemplatePerformance(
            **dict(TemplateOut.model_validate(found)), steps=steps.get(found.template_id, [])
        )
        for found in analytics.templates(since=since)
        if query.namespace in (None, found.namespace) and query.name in (None, found.name)
    ]
    return reply(Performance(since=since, items=items))


@router.get("/bottlenecks", response=documented(422, _200=Bottlenecks))
def bottlenecks(request: AuthenticatedRequest, query: Query[BottleneckQuery]) -> HttpResponse:
    """The slowest, most retried and most failing steps."""
    refuse_unknown_parameters(request, BottleneckQuery)
    since = request.auth.now - timedelta(hours=query.hours)
    steps = analytics.steps(since=since)

    def worst(key: Callable[[StepPerformance], tuple[float, ...]]) -> list[Bottleneck]:
        found = sorted((step for step in steps if key(step)[0] > 0), key=key, reverse=True)
        return pages.each(Bottleneck, found[: query.limit])

    return reply(
        Bottlenecks(
            since=since,
            slowest=worst(lambda step: (step.duration_p95_seconds or 0,)),
            most_retried=worst(lambda step: (step.retries,)),
            most_failing=worst(lambda step: (step.failure_rate, step.failed_executions)),
        )
    )
