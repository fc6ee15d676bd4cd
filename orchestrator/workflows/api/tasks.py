"""Tasks: request, look at, cancel."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from ninja import Body, Query, Router
from pydantic import BaseModel, ConfigDict, Field

from orchestrator.core import cursors
from orchestrator.core.api import pages, problems
from orchestrator.core.api.access import AuthenticatedRequest
from orchestrator.core.api.application import refuse_unknown_parameters
from orchestrator.core.api.executions import Moment
from orchestrator.core.api.problems import FieldProblem, Problem
from orchestrator.core.api.replies import documented, reply
from orchestrator.workflows import engine
from orchestrator.workflows.models import Task, TransitionRecord
from orchestrator.workflows.models.tasks import TaskQuerySet
from orchestrator.workflows.shown import graph, mermaid, steps
from orchestrator.workflows.shown import tasks as shown
from orchestrator.workflows.shown.tasks import GraphOut, TaskDetail, TaskSummary, TransitionOut
from orchestrator.workflows.states import TaskState

router = Router(tags=["tasks"])


class NewTask(BaseModel):
    """One run of one version of a template."""

    model_config = ConfigDict(extra="forbid", strict=True)

    namespace: pages.Text = Field(min_length=1, max_length=29, examples=["shop"])
    name: pages.Text = Field(min_length=1, max_length=60, examples=["order_fulfilment"])
    version: pages.Text = Field(min_length=1, max_length=40, examples=["1.0.0"])
    context: dict[str, Any] = Field({}, description="Checked against the template's schema.")
    initiator: str = Field("", max_length=150, description="Who or what wants it.")
    source_system: str = Field("", max_length=150)
    reason: str = Field("", max_length=500, description="Why.")
    tags: list[str] = Field([], max_length=50)
    priority: int = Field(0, ge=-100, le=100, description="That of its executions.")
    correlation_id: str | None = Field(None, min_length=1, max_length=100)
    parent_correlation_id: str | None = Field(None, min_length=1, max_length=100)
    idempotency_key: str | None = Field(
        None,
        min_length=1,
        max_length=200,
        description="Asking again with the same key returns the task of the first time.",
    )


class TaskPage(pages.Page):
    items: list[TaskSummary]


class TaskQuery(pages.PageQuery):
    """Filters; all of them must hold."""

    state: list[TaskState] = Field([], description="May be repeated: any of these.")
    namespace: pages.Text | None = None
    name: pages.Text | None = Field(None, description="Of its template.")
    version: pages.Text | None = None
    correlation_id: pages.Text | None = None
    parent_correlation_id: pages.Text | None = None
    initiator: pages.Text | None = None
    source_system: pages.Text | None = None
    created_after: Moment | None = Field(None, description="From then on, with a time zone.")
    created_before: Moment | None = Field(None, description="Before then, with a time zone.")
    open: bool | None = Field(None, description="true: neither over nor in error.")


class TransitionPage(pages.Page):
    items: list[TransitionOut]


class Ending(BaseModel):
    """Why it is cancelled."""

    reason: pages.Text = Field("", max_length=500, description="Kept in the audit.")


@router.post("", response=documented(409, _201=TaskDetail, _200=TaskDetail))
def request_task(request: AuthenticatedRequest, new: Body[NewTask]) -> HttpResponse:
    """Accept a task: 201, or 200 with the first one where the idempotency key was used.

    The same template and context again is 409 where the template is `strict`; a template that is
    `caller_provided` answers 400 without an idempotency_key.
    """
    caller = request.auth
    wanted = engine.NewTask(**dict(new))
    try:
        task = engine.request(wanted, requested_by=caller.name, now=caller.now)
    except engine.TaskRefused as refused:
        raise problems.invalid(
            FieldProblem(pointer=problem.pointer, message=problem.message)
            for problem in refused.problems
        ) from None
    except engine.UnknownTemplate as error:
        raise problems.invalid([FieldProblem(pointer="/name", message=str(error))]) from None
    except engine.KeyMissing as error:
        field = FieldProblem(pointer="/idempotency_key", message="is required by the template")
        title = "An idempotency key is needed"
        raise Problem(400, "key-missing", title, str(error), [field]) from None
    return reply(
        shown.detail(task),
        status=201 if task.created_at == caller.now else 200,
        location=f"{request.path}/{task.pk}",
    )


@router.get("", response=documented(422, _200=TaskPage))
def list_tasks(request: AuthenticatedRequest, query: Query[TaskQuery]) -> HttpResponse:
    """Tasks, newest first. `context` is on the page of each."""
    refuse_unknown_parameters(request, TaskQuery)
    rows = _filtered(query).select_related("template").defer("context", "template__definition")
    found, cursor = pages.newest_first(rows, query, key=UUID)
    counts = steps.counts(task.pk for task in found)
    items = [shown.summary(task, counts[task.pk]) for task in found]
    return reply(TaskPage(items=items, next=pages.link(request, cursor), next_cursor=cursor))


@router.get("/{task_uuid}", response=documented(404, _200=TaskDetail))
def get_task(request: AuthenticatedRequest, task_uuid: UUID) -> HttpResponse:
    """One task, with its context."""
    return reply(shown.detail(known(task_uuid)))


@router.delete("/{task_uuid}", response=documented(404, 409, 422, _200=TaskDetail))
def cancel_task(
    request: AuthenticatedRequest, task_uuid: UUID, query: Query[Ending]
) -> HttpResponse:
    """Cancel it: its open steps, and what runs of it is told to stop. 409 if it is over."""
    refuse_unknown_parameters(request, Ending)
    caller = request.auth
    engine.cancel(task_uuid, reason=query.reason, actor=caller.name, now=caller.now)
    return reply(shown.detail(known(task_uuid)))


@router.get("/{task_uuid}/graph", response=documented(404, _200=GraphOut))
def get_task_graph(request: AuthenticatedRequest, task_uuid: UUID) -> HttpResponse:
    """Its steps and what each waits for. With `Accept: text/vnd.mermaid` (or text/plain) as
    Mermaid, in which crowds of like steps are one."""
    task = known(task_uuid)
    if _wants_json(request):
        return reply(shown.graph_of(task))
    text = mermaid.written(graph.folded(graph.of_task(task)))
    return HttpResponse(text, content_type=f"{mermaid.CONTENT_TYPE}; charset=utf-8")


@router.get("/{task_uuid}/audit", response=documented(404, 422, _200=TransitionPage))
def get_task_audit(
    request: AuthenticatedRequest, task_uuid: UUID, query: Query[pages.PageQuery]
) -> HttpResponse:
    """Every transition of the task and of its steps, oldest first."""
    return audit(request, TransitionRecord.objects.filter(task=known(task_uuid)), query)


def audit(
    request: AuthenticatedRequest, rows: QuerySet[TransitionRecord], query: pages.PageQuery
) -> HttpResponse:
    """A page of records."""
    refuse_unknown_parameters(request, pages.PageQuery)
    found, cursor = pages.oldest_first(rows, query, key=cursors.whole_number)
    items = pages.each(TransitionOut, found)
    return reply(TransitionPage(items=items, next=pages.link(request, cursor), next_cursor=cursor))


def known(task_uuid: UUID) -> Task:
    """The task of this id, with its template; or 404."""
    task = Task.objects.select_related("template").filter(pk=task_uuid).first()
    if task is None:
        raise problems.not_found(f"No task has the id {task_uuid}")
    return task


def _wants_json(request: HttpRequest) -> bool:
    mermaids = [mermaid.CONTENT_TYPE, "text/plain"]
    return request.get_preferred_type(["application/json", *mermaids]) not in mermaids


def _filtered(query: TaskQuery) -> TaskQuerySet:
    rows = Task.objects.all()
    if query.state:
        rows = rows.filter(state__in=query.state)
    if query.open is not None:
        rows = rows.filter(ended_at__isnull=query.open)
    if query.created_after is not None:
        rows = rows.filter(created_at__gte=query.created_after)
    if query.created_before is not None:
        rows = rows.filter(created_at__lt=query.created_before)
    equal = ("correlation_id", "parent_correlation_id", "initiator", "source_system")
    wanted = {name: value for name in equal if (value := getattr(query, name)) is not None}
    for name in ("namespace", "name", "version"):
        if (value := getattr(query, name)) is not None:
            wanted[f"template__{name}"] = value
    return rows.filter(**wanted)
