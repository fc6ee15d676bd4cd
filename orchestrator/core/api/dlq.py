"""Dead letters and stuck work: list entries, open them, add notes, close them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

from django.http import HttpResponse
from ninja import Body, Query, Router
from pydantic import BaseModel, ConfigDict, Field, model_validator

from orchestrator.core import authority, cursors, investigations
from orchestrator.core.api import pages, problems
from orchestrator.core.api.access import AuthenticatedRequest, needs
from orchestrator.core.api.application import refuse_unknown_parameters
from orchestrator.core.api.executions import Moment
from orchestrator.core.api.given_names import GIVEN_NAME, GivenName
from orchestrator.core.api.problems import FieldProblem
from orchestrator.core.api.replies import documented, reply
from orchestrator.core.investigations import TEXT_MAX
from orchestrator.core.models import DLQEntry
from orchestrator.core.models.dead_letters import DLQEntryQuerySet, may_scan
from orchestrator.core.shown import investigations as shown
from orchestrator.core.shown.investigations import NAMES, DLQDetail, DLQSummary

router = Router(tags=["dead letters"])


class DLQPage(pages.Page):
    items: list[DLQSummary]


class Offset(BaseModel):
    """The rows to skip."""

    offset: int = Field(
        0,
        ge=0,
        le=1_000_000,
        description="Rows to skip. A cursor is faster, and not affected by new rows.",
    )


class EntryPageQuery(pages.PageQuery, Offset):
    """The page of a listing."""


class EntryFilters(BaseModel):
    """Filters; all of them must hold."""

    namespace: pages.Text | None = Field(None, description="The namespace of its task's template.")
    template: pages.Text | None = Field(None, description="The name of its task's template.")
    opened_after: Moment | None = Field(
        None, description="At or after this time, with a time zone."
    )
    opened_before: Moment | None = Field(None, description="Before this time, with a time zone.")
    original_queue: pages.Text | None = Field(None, description="The queue its letter died in.")
    subject_name: pages.Text | None = Field(
        None, description="An action's ref, or a template's namespace/name/version: exactly."
    )

    def within(self, rows: DLQEntryQuerySet) -> DLQEntryQuerySet:
        """Those of the entries for which the filters hold."""
        columns = {"original_queue", "subject_name"}
        rows = rows.filter(**self.model_dump(include=columns, exclude_none=True))
        rows = rows.opened(self.opened_after, self.opened_before)
        return rows.of_template(self.namespace, self.template)


class EntryQuery(EntryFilters):
    """Filters; all of them must hold."""

    resolution_status: DLQEntry.Resolution | None = None
    dlq_reason: DLQEntry.Reason | None = None
    subject_kind: pages.Text | None = None
    subject_id: UUID | None = None
    task_uuid: UUID | None = None
    execution_id: UUID | None = None

    def within(self, rows: DLQEntryQuerySet) -> DLQEntryQuerySet:
        """Those of the entries for which the filters hold."""
        columns = {"resolution_status", "dlq_reason", "subject_kind", "subject_id"}
        rows = super().within(rows).filter(**self.model_dump(include=columns, exclude_none=True))
        for kind, id in _named(self):
            rows = rows.filter(subject_kind=kind, subject_id=id)
        return rows


class DLQQuery(EntryPageQuery, EntryQuery):
    """A page, and filters; all of them must hold."""


class NewDLQEntry(BaseModel):
    """An investigation to open. Its subject is named by `subject_kind` and `subject_id`, by
    `task_uuid`, or by `execution_id`."""

    model_config = ConfigDict(extra="forbid")

    subject_kind: str | None = None
    subject_id: UUID | None = None
    task_uuid: UUID | None = None
    execution_id: UUID | None = None
    detail: str = Field(min_length=1, max_length=TEXT_MAX, description="The problem.")


class DLQChange(BaseModel):
    """A note, metadata, the end of the investigation, or all of them."""

    model_config = ConfigDict(extra="forbid")

    resolution_status: DLQEntry.Resolution | None = Field(
        None, description="Any value but `pending` closes the entry. It cannot be opened again."
    )
    note: str = Field("", max_length=TEXT_MAX, description="Appended to `notes`.")
    resolution_notes: str = Field("", max_length=TEXT_MAX, description="Another name of `note`.")
    resolved_by: GivenName | None = GIVEN_NAME
    metadata: dict[str, Any] = Field({}, description="Merged into the entry's metadata.")

    @model_validator(mode="after")
    def _changes_something(self) -> DLQChange:
        if self.note and self.resolution_notes:
            raise ValueError("expected a note or resolution_notes, not both")
        if self.resolution_status in (None, DLQEntry.Resolution.PENDING) and not (
            self.text or self.metadata
        ):
            raise ValueError("expected a resolution_status that closes it, a note or metadata")
        return self

    @property
    def text(self) -> str:
        """The note, by either of its names."""
        return self.note or self.resolution_notes


@router.get("", auth=needs("dlq.read"), response=documented(422, _200=DLQPage))
def list_dlq_entries(request: AuthenticatedRequest, query: Query[DLQQuery]) -> HttpResponse:
    """Entries, newest first.

    For all filters but a subject's id and `pending`, a page looks at 100,000 entries: it may be
    short, or even empty, and `next` leads on to older ones until it is null. With an `offset`,
    which counts all that match, a page looks at all.
    """
    refuse_unknown_parameters(request, DLQQuery)
    rows = query.within(DLQEntry.objects.visible_to(request.auth.principal))
    entries, cursor = pages.newest_first(
        rows.without_contents(),
        query,
        key=cursors.whole_number,
        offset=query.offset,
        among=DLQEntry.objects.all() if _may_scan(query) else None,
    )
    items = [shown.summary(entry, seen_by=request.auth.principal) for entry in entries]
    return reply(DLQPage(items=items, next=pages.link(request, cursor), next_cursor=cursor))


@router.post("", auth=needs("dlq.change"), response=documented(409, _201=DLQDetail))
def open_dlq_entry(request: AuthenticatedRequest, body: Body[NewDLQEntry]) -> HttpResponse:
    """Open an entry by hand (`manual_dlq`). Its subject continues as before."""
    kind, id, pointer = _subject(body)
    try:
        entry = investigations.open_manually(
            kind,
            id,
            detail=body.detail,
            now=request.auth.now,
            actor=request.auth.name,
            principal=request.auth.principal,
        )
    except investigations.UnknownKind as error:
        field = FieldProblem(pointer="/subject_kind", message=str(error))
        raise problems.invalid([field]) from None
    except investigations.UnknownSubject as error:
        raise problems.invalid([FieldProblem(pointer=pointer, message=str(error))]) from None
    return reply(
        shown.whole(entry, seen_by=request.auth.principal),
        status=201,
        location=f"{request.path}/entry/{entry.dlq_entry_uuid}",
    )


@router.get(
    "/entry/{dlq_entry_uuid}", auth=needs("dlq.read"), response=documented(404, _200=DLQDetail)
)
def get_dlq_entry(request: AuthenticatedRequest, dlq_entry_uuid: UUID) -> HttpResponse:
    """One entry, with everything that was stored."""
    entry = _known(request, dlq_entry_uuid, "dlq.read")
    return reply(shown.whole(entry, seen_by=request.auth.principal))


@router.patch(
    "/entry/{dlq_entry_uuid}",
    auth=needs("dlq.change"),
    response=documented(404, 409, _200=DLQDetail),
)
def change_dlq_entry(
    request: AuthenticatedRequest, dlq_entry_uuid: UUID, body: Body[DLQChange]
) -> HttpResponse:
    """Add a note, merge metadata, or close the entry. 409 if it is closed.

    The caller is the author of the note and closes the entry; the name in `resolved_by` is kept
    with the note, as `on_behalf_of`.
    """
    _known(request, dlq_entry_uuid, "dlq.change")
    common: dict[str, Any] = {
        "now": request.auth.now,
        "actor": request.auth.name,
        "note": body.text,
        "metadata": body.metadata,
        "on_behalf_of": body.resolved_by or "",
    }
    if body.resolution_status in (None, DLQEntry.Resolution.PENDING):
        entry = investigations.annotate(dlq_entry_uuid, **common)
    else:
        entry = investigations.close(dlq_entry_uuid, resolution=body.resolution_status, **common)
    return reply(shown.whole(entry, seen_by=request.auth.principal))


def _known(request: AuthenticatedRequest, dlq_entry_uuid: UUID, permission: str) -> DLQEntry:
    entry = DLQEntry.objects.filter(dlq_entry_uuid=dlq_entry_uuid).first()
    if entry is None or not authority.may(request.auth.principal, permission, entry.place):
        raise investigations.UnknownEntry(f"No DLQ entry has the id {dlq_entry_uuid}")
    return entry


def _may_scan(query: DLQQuery) -> bool:
    names = ("dlq_reason", "subject_kind", *EntryFilters.model_fields)
    return not query.offset and may_scan(
        is_of_subject=query.subject_id is not None or any(_named(query)),
        resolution_status=query.resolution_status,
        others=[getattr(query, name) for name in names],
    )


def _subject(body: NewDLQEntry) -> tuple[str, UUID, str]:
    """The kind and the id of the wanted subject, and the pointer to the id in the body."""
    wanted = [(kind, id, f"/{NAMES[kind]}") for kind, id in _named(body)]
    if body.subject_kind is not None and body.subject_id is not None:
        wanted.append((body.subject_kind, body.subject_id, "/subject_id"))
    if len(wanted) != 1 or (body.subject_kind is None) != (body.subject_id is None):
        message = "expected a task_uuid, an execution_id, or a subject_kind with its subject_id"
        raise problems.invalid([FieldProblem(pointer="", message=message)])
    return wanted[0]


def _named(given: NewDLQEntry | EntryQuery) -> Iterator[tuple[str, UUID]]:
    """The subjects that have the name of their kind."""
    for kind, name in NAMES.items():
        if (id := getattr(given, name)) is not None:
            yield kind, id
