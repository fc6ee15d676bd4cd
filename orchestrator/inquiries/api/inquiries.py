"""Inquiries: list, show, ask, answer, cancel."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

from django.http import HttpResponse
from ninja import Body, Query, Router
from pydantic import BaseModel, ConfigDict, Field

from orchestrator.core import authority, json_values
from orchestrator.core.api import pages, problems
from orchestrator.core.api.access import AuthenticatedRequest, needs
from orchestrator.core.api.application import refuse_unknown_parameters
from orchestrator.core.api.problems import FieldProblem, Problem
from orchestrator.core.api.replies import documented, reply
from orchestrator.core.authority import Place
from orchestrator.core.errors import Refused
from orchestrator.core.frame import PACKS
from orchestrator.core.models import Execution
from orchestrator.inquiries import answering, asking, listing, questions
from orchestrator.inquiries.models import Inquiry
from orchestrator.inquiries.models.inquiries import ANSWER_KEY_MAX, IDEMPOTENCY_KEY_MAX, PURPOSE_MAX
from orchestrator.inquiries.shown import inquiries as shown
from orchestrator.inquiries.shown.inquiries import InquiryShown
from orchestrator.inquiries.states import InquiryState

router = Router(tags=["inquiries"])

PACK = r"^[a-z0-9_-]{1,60}$"


class InquiryPage(pages.Page):
    items: list[InquiryShown]


class InquiryQuery(pages.PageQuery):
    """Filters; all of them must hold."""

    state: list[InquiryState] = Field([], description="May be repeated; any of them matches.")
    execution_id: UUID | None = Field(None, description="That asked it, or waits for it.")
    pack: pages.Text | None = None


class NewInquiry(BaseModel):
    """A question to people."""

    model_config = ConfigDict(extra="forbid", strict=True)

    prompt: pages.Text = Field(examples=["Deploy 1.4.0 to production?"])
    response_schema: dict[str, Any] = Field(
        {},
        description="JSON Schema of the response, an object.",
        examples=[{"properties": {"approved": {"type": "boolean"}}, "required": ["approved"]}],
    )
    assignees: list[pages.Text] = Field(
        [],
        description="`user:NAME`, `service:NAME`, `role:ROLE`, `action:PACK.NAME`; empty for all "
        "with permission.",
        examples=[["role:operator"]],
    )
    ttl_seconds: float = Field(questions.DAY_SECONDS, examples=[3600])
    on_timeout: Literal["error", "complete"] = Field(
        "error",
        description="What becomes of what waits if nobody answers: it fails, or completes with "
        "`default`.",
    )
    default: dict[str, Any] | None = Field(
        None, description="The response that a timeout stands for; it fits the schema."
    )
    allow_requester: bool = False
    idempotency_key: pages.Text | None = Field(
        None,
        min_length=1,
        max_length=IDEMPOTENCY_KEY_MAX,
        description="A second request with the same key returns the first inquiry. For an "
        "execution, `purpose` is that.",
    )
    purpose: Annotated[str, Field(min_length=1, max_length=PURPOSE_MAX)] = Field(
        "default",
        description="An execution asks once for each purpose: a second try finds its own.",
    )
    pack: Annotated[str, Field(pattern=PACK)] = Field(
        "core", description="For scopes. An execution asks in that of its action."
    )


class Answer(BaseModel):
    """A response to the question."""

    model_config = ConfigDict(extra="forbid", strict=True)

    response: dict[str, Any] = Field(examples=[{"approved": True}])
    answer_key: pages.Text | None = Field(
        None,
        min_length=1,
        max_length=ANSWER_KEY_MAX,
        description="Makes it safe to repeat: the stored answer comes back.",
    )


class InquiryCancel(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    reason: pages.Text = Field("", max_length=answering.REASON_MAX)


@router.get("", auth=needs("inquiries.read"), response=documented(422, _200=InquiryPage))
def list_inquiries(request: AuthenticatedRequest, query: Query[InquiryQuery]) -> HttpResponse:
    """Inquiries, newest first.

    For a pack, a page looks at 100,000 of those that match the other filters: it may be short, or
    even empty, and `next` leads on to older ones until it is null.
    """
    refuse_unknown_parameters(request, InquiryQuery)
    caller = request.auth
    visible = Inquiry.objects.visible_to(caller.principal)
    wanted = query.model_dump(exclude={"limit", "cursor"})
    rows, among = listing.inquiries(visible, **wanted)
    found, cursor = pages.newest_first(rows, query, key=UUID, among=among)
    items = shown.shown_all(found, caller.now, seen_by=caller.principal)
    return reply(InquiryPage(items=items, next=pages.link(request, cursor), next_cursor=cursor))


@router.post(
    "",
    auth=needs("inquiries.ask"),
    response=documented(403, 409, _201=InquiryShown, _200=InquiryShown),
)
def ask(request: AuthenticatedRequest, new: Body[NewInquiry]) -> HttpResponse:
    """Ask people: 201, or 200 if this execution has asked it before, or the caller with this
    idempotency key. An action asks with the token
    of its execution, and a later step of its task waits for the answer."""
    caller = request.auth
    values = new.model_dump(exclude={"purpose", "pack", "idempotency_key"})
    values["schema"] = values.pop("response_schema")
    try:
        question = questions.read(values)
        asked = _asked(request, new)
        row = asking.ask(question, asked=asked, now=caller.now)
    except questions.QuestionRefused as refused:
        raise _invalid(refused) from None
    is_new = row.created_at == caller.now
    answer = shown.shown(row, caller.now, seen_by=caller.principal)
    return reply(answer, status=201 if is_new else 200, location=f"{request.path}/{row.pk}")


@router.get(
    "/{inquiry_id}", auth=needs("inquiries.read"), response=documented(404, _200=InquiryShown)
)
def get_inquiry(request: AuthenticatedRequest, inquiry_id: UUID) -> HttpResponse:
    """One inquiry."""
    row = answering.find(inquiry_id, request.auth.principal)
    return reply(shown.shown(row, request.auth.now, seen_by=request.auth.principal))


@router.post(
    "/{inquiry_id}/respond",
    auth=needs("inquiries.respond"),
    response=documented(403, 404, 409, _200=InquiryShown),
)
def respond(request: AuthenticatedRequest, inquiry_id: UUID, answer: Body[Answer]) -> HttpResponse:
    """Answer it: the first answer counts, and later ones get 409, which says who ended it, how and
    when. Not the one who asked, unless the question allows that; never an execution of the same
    tree."""
    caller = request.auth
    try:
        row = answering.respond(
            inquiry_id,
            answer.response,
            by=caller.principal,
            now=caller.now,
            answer_key=answer.answer_key,
        )
    except answering.ResponseRefused as refused:
        raise _invalid(refused) from None
    return reply(shown.shown(row, caller.now, seen_by=caller.principal))


@router.post(
    "/{inquiry_id}/cancel",
    auth=needs("inquiries.cancel"),
    response=documented(403, 404, 409, _200=InquiryShown),
)
def cancel(
    request: AuthenticatedRequest, inquiry_id: UUID, body: Body[InquiryCancel]
) -> HttpResponse:
    """Cancel it: nobody can answer any more, and what it holds up fails."""
    caller = request.auth
    row = answering.cancel(inquiry_id, by=caller.principal, now=caller.now, reason=body.reason)
    return reply(shown.shown(row, caller.now, seen_by=caller.principal))


def _asked(request: AuthenticatedRequest, new: NewInquiry) -> asking.Asked:
    principal = request.auth.principal
    if fault := json_values.text_fault(new.purpose):
        raise problems.invalid([FieldProblem(pointer="/purpose", message=f"contains {fault}")])
    if principal.execution_id is None:
        authority.require(principal, "inquiries.ask", Place(PACKS, new.pack))
        return asking.by_caller(
            principal, pack=new.pack, purpose=new.purpose, key=new.idempotency_key
        )
    if new.idempotency_key is not None:
        message = "expected none: an execution asks once for each purpose"
        raise problems.invalid([FieldProblem(pointer="/idempotency_key", message=message)])
    execution = Execution.objects.get(pk=principal.execution_id)
    return asking.by_execution(execution, purpose=new.purpose)


def _invalid(refused: Refused) -> Problem:
    return problems.invalid(
        FieldProblem(
            pointer=each.pointer.replace("/schema", "/response_schema", 1), message=each.message
        )
        for each in refused.refusals
    )
