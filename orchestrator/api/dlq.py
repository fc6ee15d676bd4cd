"""Dead letters and stuck work: look into them, note what was found, close them."""

from __future__ import annotations

import base64
from datetime import datetime
from typing import Any, NoReturn
from uuid import UUID

from django.db.models import QuerySet
from django.http import HttpResponse
from ninja import Body, Query, Router
from pydantic import BaseModel, ConfigDict, Field, model_validator

from orchestrator import investigations
from orchestrator.api import pages, problems
from orchestrator.api.access import AuthenticatedRequest
from orchestrator.api.application import refuse_unknown_parameters
from orchestrator.api.problems import FieldProblem
from orchestrator.api.replies import Out, documented, reply
from orchestrator.models import DLQEntry, Execution, Task

router = Router(tags=["dead letters"])

ID_MAX = 2**63 - 1
TEXT_MAX = 10_000


class Note(BaseModel):
    """What somebody found out."""

    at: datetime
    by: str
    text: str


class DLQSummary(Out):
    """An entry as listings show it."""

    dlq_entry_uuid: UUID
    task_uuid: UUID | None = Field(validation_alias="task_id")
    execution_id: UUID | None
    attempt: int | None
    original_state: str = Field(description="State of the task, or status of the execution, then.")
    dlq_reason: DLQEntry.Reason
    detail: str
    dlq_timestamp: datetime = Field(description="When it was opened.")
    opened_by: str
    occurrences: int = Field(
        description="How many identical letters that name no attempt came while it was pending."
    )
    last_seen_at: datetime | None = Field(description="When the last of these was drained.")
    resolution_status: DLQEntry.Resolution
    resolved_at: datetime | None
    resolved_by: str
    original_exchange: str
    original_queue: str
    original_routing_key: str


class DLQDetail(DLQSummary):
    """An entry with all that was kept."""

    task_snapshot: Any = Field(
        description="The task or execution when it was opened; secrets redacted."
    )
    notes: list[Note]
    metadata: dict[str, Any]
    headers: Any
    x_death: Any = Field(description="The broker's own account of a dead letter.")
    raw_body: str | None = Field(description="Base64; kept when it could not be read.")


class DLQPage(pages.Page):
    items: list[DLQSummary]


class TaskDLQQuery(pages.PageQuery):
    """Which rows of a listing."""

    offset: int = Field(
        0, ge=0, le=1_000_000, description="Rows to pass over; a cursor is faster, and steady."
    )


class DLQQuery(TaskDLQQuery):
    """Filters; all of them must hold."""

    resolution_status: DLQEntry.Resolution | None = None
    dlq_reason: DLQEntry.Reason | None = None
    task_uuid: UUID | None = None
    execution_id: UUID | None = None


class NewDLQEntry(BaseModel):
    """An investigation that somebody wants: of a task, or of an execution."""

    model_config = ConfigDict(extra="forbid")

    task_uuid: UUID | None = None
    execution_id: UUID | None = None
    detail: str = Field(min_length=1, max_length=TEXT_MAX, description="What is wrong.")


class DLQChange(BaseModel):
    """A note, metadata, the end of the investigation, or all of them."""

    model_config = ConfigDict(extra="forbid")

    resolution_status: DLQEntry.Resolution | None = Field(
        None, description="Anything but `pending` closes the entry for good."
    )
    note: str = Field("", max_length=TEXT_MAX, description="Appended to `notes`.")
    metadata: dict[str, Any] = Field({}, description="Merged into what is there.")

    @model_validator(mode="after")
    def _changes_something(self) -> DLQChange:
        if self.resolution_status in (None, DLQEntry.Resolution.PENDING) and not (
            self.note or self.metadata
        ):
            raise ValueError("expected a resolution_status that closes it, a note or metadata")
        return self


@router.get("", response=documented(422, _200=DLQPage))
def list_dlq_entries(request: AuthenticatedRequest, query: Query[DLQQuery]) -> HttpResponse:
    """Entries, newest first."""
    refuse_unknown_parameters(request, DLQQuery)
    rows = DLQEntry.objects.without_contents()
    wanted = query.model_dump(
        include={"resolution_status", "dlq_reason", "execution_id"}, exclude_none=True
    )
    if query.task_uuid is not None:
        wanted["task_id"] = query.task_uuid
    return _page(request, rows.filter(**wanted), query)


@router.post("", response=documented(409, _201=DLQDetail))
def open_dlq_entry(request: AuthenticatedRequest, body: Body[NewDLQEntry]) -> HttpResponse:
    """Open an entry by hand (`manual_dlq`). What it is about goes on as before."""
    entry = investigations.open_manually(
        _subject(body), detail=body.detail, now=request.auth.now, actor=request.auth.name
    )
    return reply(
        _detail(entry), status=201, location=f"{request.path}/entry/{entry.dlq_entry_uuid}"
    )


@router.get("/entry/{dlq_entry_uuid}", response=documented(404, _200=DLQDetail))
def get_dlq_entry(request: AuthenticatedRequest, dlq_entry_uuid: UUID) -> HttpResponse:
    """One entry, whole."""
    entry = DLQEntry.objects.filter(dlq_entry_uuid=dlq_entry_uuid).first()
    if entry is None:
        raise problems.not_found(f"No DLQ entry has the id {dlq_entry_uuid}")
    return reply(_detail(entry))


@router.patch("/entry/{dlq_entry_uuid}", response=documented(404, 409, _200=DLQDetail))
def change_dlq_entry(
    request: AuthenticatedRequest, dlq_entry_uuid: UUID, body: Body[DLQChange]
) -> HttpResponse:
    """Add a note, merge metadata, close it; `resolved_by` is the caller. Closed is closed: 409."""
    told: dict[str, Any] = {
        "now": request.auth.now,
        "actor": request.auth.name,
        "note": body.note,
        "metadata": body.metadata,
    }
    if body.resolution_status in (None, DLQEntry.Resolution.PENDING):
        entry = investigations.annotate(dlq_entry_uuid, **told)
    else:
        entry = investigations.close(dlq_entry_uuid, resolution=body.resolution_status, **told)
    return reply(_detail(entry))


@router.get("/task/{task_uuid}", response=documented(404, 422, _200=DLQPage))
def list_dlq_entries_of_task(
    request: AuthenticatedRequest, task_uuid: UUID, query: Query[TaskDLQQuery]
) -> HttpResponse:
    """All entries of one task, newest first; at most one of them is pending."""
    refuse_unknown_parameters(request, TaskDLQQuery)
    if not Task.objects.filter(pk=task_uuid).exists():
        raise problems.not_found(f"No task has the id {task_uuid}")
    return _page(request, DLQEntry.objects.without_contents().filter(task_id=task_uuid), query)


def _subject(body: NewDLQEntry) -> Task | Execution:
    """What an entry is wanted for; it goes on as before."""
    if (body.task_uuid is None) == (body.execution_id is None):
        message = "expected a task_uuid or an execution_id, and not both"
        raise problems.invalid([FieldProblem(pointer="", message=message)])
    if body.task_uuid is not None:
        task = Task.objects.filter(pk=body.task_uuid).select_related("template").first()
        return task or _nobody("task", "/task_uuid", body.task_uuid)
    rows = Execution.objects.select_related("worker", "action")
    found = rows.filter(pk__in=[body.execution_id]).first()
    return found or _nobody("execution", "/execution_id", body.execution_id)


def _nobody(noun: str, pointer: str, id: UUID | None) -> NoReturn:
    message = f"no {noun} has the id {id}"
    raise problems.invalid([FieldProblem(pointer=pointer, message=message)])


def _page(
    request: AuthenticatedRequest, rows: QuerySet[DLQEntry], query: TaskDLQQuery
) -> HttpResponse:
    found, cursor = pages.newest_first(rows, query, key=_id, offset=query.offset)
    items = pages.each(DLQSummary, found)
    return reply(DLQPage(items=items, next=pages.link(request, cursor), next_cursor=cursor))


def _detail(entry: DLQEntry) -> DLQDetail:
    body = None if entry.raw_body is None else base64.b64encode(entry.raw_body).decode()
    return DLQDetail.model_construct(
        **dict(DLQSummary.model_validate(entry)),
        task_snapshot=entry.task_snapshot,
        notes=[Note.model_validate(note) for note in entry.notes],
        metadata=entry.metadata,
        headers=entry.headers,
        x_death=entry.x_death,
        raw_body=body,
    )


def _id(text: str) -> int:
    number = int(text)
    if not 0 < number <= ID_MAX:
        raise ValueError
    return number
