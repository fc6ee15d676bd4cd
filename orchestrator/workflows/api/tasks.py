"""Tasks: request, list, show, cancel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from ninja import Body, Query, Router
from pydantic import BaseModel, ConfigDict, Field

from orchestrator.core import authority, cursors
from orchestrator.core.api import pages, problems
from orchestrator.core.api.access import AuthenticatedRequest, needs
from orchestrator.core.api.application import refuse_unknown_parameters
from orchestrator.core.api.executions import Moment
from orchestrator.core.api.problems import FieldProblem, Problem
from orchestrator.core.api.replies import documented, reply
from orchestrator.workflows import engine
from orchestrator.workflows.models import Task, TransitionRecord
from orchestrator.workflows.models.tasks import TaskQuerySet, may_scan
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
    initiator: str = Field("", max_length=150, description="The person or system that wants it.")
    source_system: str = Field("", max_length=150)
    reason: str = Field("", max_length=500, description="The reason of the request.")
    tags: list[str] = Field([], max_length=50)
    priority: int = Field(0, ge=-100, le=100, description="The priority of its executions.")
    correlation_id: str | None = Field(None, min_length=1, max_length=100)
    parent_correlation_id: str | None = Field(None, min_length=1, max_length=100)
    idempotency_key: str | None = Field(
        None,
        min_length=1,
        max_length=200,
        description="A second request with the same key returns the first task.",
    )


class TaskPage(pages.Page):
    items: list[TaskSummary]


class TaskQuery(pages.PageQuery):
    """Filters; all of them must hold."""

    state: list[TaskState] = Field([], description="May be repeated; any of them matches.")
    namespace: pages.Text | None = None
    name: pages.Text | None = Field(None, description="The name of its template.")
    version: pages.Text | None = None
    correlation_id: pages.Text | None = None
    parent_correlation_id: pages.Text | None = None
    initiator: pages.Text | None = None
    source_system: pages.Text | None = None
    created_after: Moment | None = Field(
        None, description="At or after this time, with a time zone."
    )
    created_before: Moment | None = Field(None, description="Before this time, with a time zone.")
    open: bool | None = Field(
        None, description="true for tasks that have not ended and are not in error."
    )


class TransitionPage(pages.Page):
    items: list[TransitionOut]


class Ending(BaseModel):
    """The reason of a cancellation."""

    reason: pages.Text = Field("", max_length=500, description="Stored in the audit.")


class Verdict(BaseModel):
    """The reason why a task is released, or resolved."""

    model_config = ConfigDict(extra="forbid")

    reason: pages.Text = Field(min_length=1, max_length=500, description="Kept in the audit.")


@router.post(
    "", auth=needs("tasks.run"), response=documented(409, _201=TaskDetail, _200=TaskDetail)
)
def request_task(request: AuthenticatedRequest, new: Body[NewTask]) -> HttpResponse:
    """Accept a task: 201, or 200 with the first one if the idempotency key was used.

    The same template and context again is 409 if the template is `strict`. A template that is
    `caller_provided` answers 400 without an idempotency_key. The steps run with the permissions of
    the caller: 403 unless it may run each action that the template names.
    """
    caller = request.auth
    wanted = engine.NewTask(**dict(new))
    try:
        task = engine.request(
            wanted, requested_by=caller.name, principal=caller.principal, now=caller.now
        )
    except engine.UnknownTemplate as error:
        raise problems.invalid([FieldProblem(pointer="/name", message=str(error))]) from None
    except engine.KeyMissing as error:
        field = FieldProblem(pointer="/idempotency_key", message="is required by the template")
        title = "An idempotency key is needed"
        raise Problem(400, "key-missing", title, str(error), [field]) from None
    return reply(
        shown.detail(task, seen_by=caller.principal),
        status=201 if task.created_at == caller.now else 200,
        location=f"{request.path}/{task.pk}",
    )


@router.get("", auth=needs("tasks.read"), response=documented(422, _200=TaskPage))
def list_tasks(request: AuthenticatedRequest, query: Query[TaskQuery]) -> HttpResponse:
    """Tasks, newest first, without `context`.

    For a state that is an end, or `error`, an initiator, a source system or a parent's correlation
    id, a page looks at 100,000 tasks: it may be short, or even empty, and `next` leads on to older
    ones until it is null. Tasks that are open, and those of a correlation id, have an index.
    """
    refuse_unknown_parameters(request, TaskQuery)
    visible = Task.objects.visible_to(request.auth.principal).select_related("template")
    rows = _filtered(visible, query).defer("context", "template__definition")
    among = pages.created_within(Task.objects.all(), query) if _may_scan(query) else None
    tasks, cursor = pages.newest_first(rows, query, key=UUID, among=among)
    counts = steps.counts(task.pk for task in tasks)
    items = [shown.summary(task, counts[task.pk]) for task in tasks]
    return reply(TaskPage(items=items, next=pages.link(request, cursor), next_cursor=cursor))


@router.get("/{task_uuid}", auth=needs("tasks.read"), response=documented(404, _200=TaskDetail))
def get_task(request: AuthenticatedRequest, task_uuid: UUID) -> HttpResponse:
    """One task, with its context."""
    return _reply(request, known(request, task_uuid))


@router.delete(
    "/{task_uuid}",
    auth=needs("tasks.cancel"),
    response=documented(404, 409, 422, _200=TaskDetail),
)
def cancel_task(
    request: AuthenticatedRequest, task_uuid: UUID, query: Query[Ending]
) -> HttpResponse:
    """Cancel a task and its open steps, and stop its running executions. 409 if it has ended."""
    refuse_unknown_parameters(request, Ending)
    caller = request.auth
    known(request, task_uuid, "tasks.cancel")
    engine.cancel(task_uuid, reason=query.reason, actor=caller.name, now=caller.now)
    return _reply(request, known(request, task_uuid, "tasks.cancel"))


@router.post(
    "/{task_uuid}/release",
    auth=needs("steps.repair"),
    response=documented(404, 409, 422, _200=TaskDetail),
)
def release_task(
    request: AuthenticatedRequest, task_uuid: UUID, new: Body[Verdict]
) -> HttpResponse:
    """Have a task in error advanced again, as it is. 409 if it is not in error, or over."""
    return _by_hand(request, task_uuid, engine.release, new)


@router.post(
    "/{task_uuid}/resolve",
    auth=needs("steps.repair"),
    response=documented(404, 409, 422, _200=TaskDetail),
)
def resolve_task(
    request: AuthenticatedRequest, task_uuid: UUID, new: Body[Verdict]
) -> HttpResponse:
    """Close a task that is blocked by failures, because its work was done elsewhere; its open steps
    are cancelled. 409 if it is not blocked, or over."""
    return _by_hand(request, task_uuid, engine.resolve, new)


def _by_hand(
    request: AuthenticatedRequest, task_uuid: UUID, verb: Callable[..., Task], new: Verdict
) -> HttpResponse:
    known(request, task_uuid, "steps.repair")
    try:
        verb(task_uuid, reason=new.reason, actor=request.auth.name, now=request.auth.now)
    except engine.ReasonMissing as error:
        raise problems.invalid([FieldProblem(pointer="/reason", message=str(error))]) from None
    return _reply(request, known(request, task_uuid, "steps.repair"))


@router.get("/{task_uuid}/graph", auth=needs("tasks.read"), response=documented(404, _200=GraphOut))
def get_task_graph(request: AuthenticatedRequest, task_uuid: UUID) -> HttpResponse:
    """The steps of a task, and the steps that each waits for. With `Accept: text/vnd.mermaid` (or
    text/plain) as Mermaid, in which large groups of similar steps are one node."""
    task = known(request, task_uuid)
    if _wants_json(request):
        return reply(shown.graph_of(task))
    text = mermaid.written(graph.folded(graph.of_task(task)))
    return HttpResponse(text, content_type=f"{mermaid.CONTENT_TYPE}; charset=utf-8")


@router.get(
    "/{task_uuid}/audit",
    auth=needs("tasks.read"),
    response=documented(404, 422, _200=TransitionPage),
)
def get_task_audit(
    request: AuthenticatedRequest, task_uuid: UUID, query: Query[pages.PageQuery]
) -> HttpResponse:
    """Every transition of the task and of its steps, oldest first."""
    return audit(request, TransitionRecord.objects.filter(task=known(request, task_uuid)), query)


def audit(
    request: AuthenticatedRequest, rows: QuerySet[TransitionRecord], query: pages.PageQuery
) -> HttpResponse:
    """A page of records."""
    refuse_unknown_parameters(request, pages.PageQuery)
    records, cursor = pages.oldest_first(rows, query, key=cursors.whole_number)
    items = pages.each(TransitionOut, records)
    return reply(TransitionPage(items=items, next=pages.link(request, cursor), next_cursor=cursor))


def known(request: AuthenticatedRequest, task_uuid: UUID, permission: str = "tasks.read") -> Task:
    """The task with this id, and its template; 404 if there is none for which the caller has the
    permission."""
    task = Task.objects.select_related("template").filter(pk=task_uuid).first()
    if task is None or not authority.may(request.auth.principal, permission, task.place):
        raise problems.not_found(f"No task has the id {task_uuid}")
    return task


def _reply(request: AuthenticatedRequest, task: Task) -> HttpResponse:
    return reply(shown.detail(task, seen_by=request.auth.principal))


def _wants_json(request: HttpRequest) -> bool:
    mermaids = [mermaid.CONTENT_TYPE, "text/plain"]
    return request.get_preferred_type(["application/json", *mermaids]) not in mermaids


def _filtered(rows: TaskQuerySet, query: TaskQuery) -> TaskQuerySet:
    if query.state:
        rows = rows.in_state(*query.state)
    if query.open is not None:
        rows = rows.filter(ended_at__isnull=query.open)
    if names := _given(query, "namespace", "name", "version"):
        rows = rows.of_templates(**names)
    equal = ("correlation_id", "parent_correlation_id", "initiator", "source_system")
    return pages.created_within(rows, query).filter(**_given(query, *equal))


def _may_scan(query: TaskQuery) -> bool:
    if query.open or query.correlation_id is not None:
        return False
    columns = _given(query, "initiator", "source_system", "parent_correlation_id")
    return may_scan(states=query.state, **columns)


def _given(query: TaskQuery, *names: str) -> dict[str, str]:
    return {name: value for name in names if (value := getattr(query, name)) is not None}
