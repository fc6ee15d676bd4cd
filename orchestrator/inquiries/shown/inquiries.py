"""An inquiry: as JSON, as facts, and what it says on the pages of executions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from django.utils import timezone
from pydantic import Field

from orchestrator.core import authority, contents, words
from orchestrator.core.authority import Principal
from orchestrator.core.models import Execution
from orchestrator.core.models.prepared import PreparedForIds
from orchestrator.core.redaction import redacted, redacted_schema
from orchestrator.core.shown.documents import Shown
from orchestrator.core.shown.values import (
    At,
    Due,
    Fact,
    Happening,
    Json,
    Link,
    Prose,
    State,
    said,
)
from orchestrator.inquiries import answerers, answering
from orchestrator.inquiries.models import Inquiry, InquiryWait
from orchestrator.inquiries.states import INQUIRIES, KINDS, InquiryState

WAIT = "_inquiry_wait"
PROMPT_CHARACTERS = 120

_waits_by_id = PreparedForIds(
    lambda ids: InquiryWait.objects.filter(pk__in=ids).select_related("inquiry")
)


class InquiryShown(Shown):
    """A question to people, and its answer."""

    id: UUID
    state: InquiryState
    prompt: str
    response_schema: dict[str, Any] = Field(description="JSON Schema of the response.")
    assignees: list[str] = Field(description="Who may answer; empty for all with permission.")
    allow_requester: bool = Field(description="Whether the one who asked may answer, too.")
    asked_by: str = Field(description="Whoever is behind the question.")
    asked_by_execution_id: UUID | None
    purpose: str
    pack: str
    holds_up: list[UUID] = Field(description="The executions that wait for its end.")
    may_answer: bool = Field(description="Whether you may answer it now.")
    on_timeout: str
    response: Any = Field(
        description="The answer; secrets are `***`, and all of it without `payloads.read`."
    )
    answered_by: str
    answered_at: datetime | None
    ended_by: str
    reason: str
    created_at: datetime
    expires_at: datetime
    ended_at: datetime | None


COPIED = (
    "id", "state", "prompt", "assignees", "allow_requester", "asked_by", "asked_by_execution_id",
    "purpose", "pack", "on_timeout", "answered_by", "answered_at", "ended_by", "reason",
    "created_at", "expires_at", "ended_at",
)  # fmt: skip


def shown(row: Inquiry, now: datetime, *, seen_by: Principal) -> InquiryShown:
    """Convert an inquiry."""
    return shown_all([row], now, seen_by=seen_by)[0]


def shown_all(rows: Sequence[Inquiry], now: datetime, *, seen_by: Principal) -> list[InquiryShown]:
    """Convert inquiries, with one query for what they hold up."""
    holds_up: dict[UUID, list[UUID]] = {row.pk: [] for row in rows}
    waits = InquiryWait.objects.filter(inquiry__in=holds_up).order_by("pk")
    for inquiry_id, execution_id in waits.values_list("inquiry_id", "execution_id"):
        holds_up[inquiry_id].append(execution_id)
    return [
        InquiryShown(
            **{name: getattr(row, name) for name in COPIED},
            response_schema=schema(row),
            holds_up=holds_up[row.pk],
            may_answer=is_answerable(row, now) and answerers.may(row, seen_by),
            response=response(row, seen_by=seen_by),
        )
        for row in rows
    ]


def is_answerable(row: Inquiry, now: datetime) -> bool:
    """Return True while an answer would be in time."""
    return row.is_open and now < row.expires_at


def response(row: Inquiry, *, seen_by: Principal) -> Any:
    """The answer, without what the schema or a name marks as secret."""
    known = redacted(row.response, schema=row.schema)
    return authority.payload(known, of=row.place, seen_by=seen_by)


def schema(row: Inquiry) -> Any:
    """The schema of the response, without values for what it marks as secret."""
    return redacted_schema(row.schema)


def line(row: Inquiry) -> str:
    """The prompt in one line."""
    text = " ".join(row.prompt.split())
    return text if len(text) <= PROMPT_CHARACTERS else f"{text[:PROMPT_CHARACTERS]}…"


def who(row: Inquiry) -> str:
    """Those who may answer, in words."""
    named = ", ".join(row.assignees) or "whoever has inquiries.respond"
    return f"{named}{'' if row.allow_requester else ', but not who asked'}"


def situation(row: Inquiry, now: datetime, *, seen_by: Principal) -> list[Fact]:
    """Its state, who may answer, and what it holds up."""
    expires = Due(row.expires_at, now) if row.is_open else At(row.expires_at)
    held_up = _held_up(row)
    link = _links([row.asked_by_execution_id, *held_up])
    return said(
        [
            ("Inquiry", str(row.pk)),
            ("State", State(row.state, KINDS)),
            ("Question", row.prompt),
            ("Moved on by", Prose(INQUIRIES.who_moves_it_on[InquiryState(row.state)])),
            ("May be answered by", who(row)),
            ("You may answer", _may(row, now, seen_by)),
            ("Asked by", row.asked_by),
            ("Asked in", link.get(row.asked_by_execution_id)),
            ("Purpose", row.purpose),
            *(("Holds up", link[id]) for id in held_up),
            ("Asked", At(row.created_at)),
            ("Expires", expires),
            ("If nobody answers", _timeout(row, seen_by)),
            ("Answered by", row.answered_by),
            ("Ended", _ended(row)),
            ("Response", _response(row, seen_by)),
        ]
    )


def _may(row: Inquiry, now: datetime, seen_by: Principal) -> str | None:
    if not is_answerable(row, now):
        return None
    if not authority.may(seen_by, answerers.RESPOND, row.place):
        return f"no: it needs the permission {answerers.RESPOND}"
    why = answerers.refusal(row, seen_by)
    return f"no: {why[0].lower()}{why[1:]}" if why else "yes"


def _timeout(row: Inquiry, seen_by: Principal) -> Any:
    if row.on_timeout == "error":
        return "what it holds up fails"
    # it becomes the response
    known = redacted(row.default, schema=row.schema)
    return Json(authority.payload(known, of=row.place, seen_by=seen_by))


def _ended(row: Inquiry) -> str | None:
    zone = timezone.get_current_timezone()
    return None if row.is_open else f"it {answering.how_it_ended(row, zone)}"


def _response(row: Inquiry, seen_by: Principal) -> Json | None:
    known = response(row, seen_by=seen_by)
    return None if known is None else Json(known)


def _held_up(row: Inquiry) -> list[UUID]:
    return list(row.waits.order_by("pk").values_list("pk", flat=True)[:5])


def _links(execution_ids: Collection[UUID | None]) -> Mapping[UUID | None, Link | str]:
    """Links to executions, in one query."""
    ids = {id for id in execution_ids if id is not None}
    present = Execution.objects.only("pk", "action_ref").in_bulk(ids)
    return {id: Link(present[id], str(id)) if id in present else f"{id} (removed)" for id in ids}


def timeline(row: Inquiry) -> list[Happening]:
    """Its life, as lines."""
    lines = [
        Happening(
            at=row.created_at, after_seconds=0, event="asked", to=InquiryState.PENDING,
            actor=row.asked_by,
        )
    ]  # fmt: skip
    for each in row.history.order_by("pk"):
        lines.append(
            Happening(
                at=each.at,
                after_seconds=(each.at - lines[-1].at).total_seconds(),
                event=each.event,
                was=each.from_state,
                to=each.to_state,
                actor=each.actor,
                reason=each.reason,
            )
        )
    return lines


# --- on the pages of executions ------------------------------------------------------------------


def of_execution(execution: Execution) -> list[Fact]:
    """The inquiries that an execution asked, and the one that it waits for, for its page."""
    asked = Inquiry.objects.filter(asked_by_execution=execution).order_by("pk")
    wait = _waits_of([execution]).get(execution.pk)
    facts: list[Fact] = []
    if wait is not None:
        facts.append(_fact("Waits for inquiry" if wait.resumed_at is None else "Waited for", wait))
    facts += [
        ("Inquiry", Link(row, line(row), f"({row.state})"))
        for row in asked
        if wait is None or row.pk != wait.inquiry_id
    ]
    return facts


def _fact(name: str, wait: InquiryWait) -> Fact:
    row = wait.inquiry
    by = f", {row.answered_by}" if row.answered_by else ""
    return name, Link(row, line(row), f"({row.state}{by})")


def of_executions(execution_ids: Collection[UUID]) -> Mapping[UUID, Inquiry]:
    """The inquiries that these executions wait for, or waited for, in one query."""
    return {id: wait.inquiry for id, wait in _waits(execution_ids).items()}


def _waits(execution_ids: Collection[UUID]) -> dict[UUID, InquiryWait]:
    return {wait.pk: wait for wait in _waits_by_id(execution_ids)}


def _waits_of(executions: Collection[Execution]) -> dict[UUID, InquiryWait]:
    """The waits of these, by id. Nobody is asked about executions that were sent to a worker: such
    a one waits for no answer. A page asks more than once: each keeps what was read for it."""
    executions = [execution for execution in executions if execution.attempt == 0]
    unread = [each for each in executions if WAIT not in each.__dict__]
    found = _waits([each.pk for each in unread])
    for each in unread:
        each.__dict__[WAIT] = found.get(each.pk)
    return {each.pk: each.__dict__[WAIT] for each in executions if each.__dict__[WAIT]}


def secrets_of(executions: Collection[Execution]) -> Mapping[UUID, contents.Secrets]:
    """The secrets in the results of executions that waited for an answer: the schema of that marks
    them. For `MusterApp.execution_secrets`."""
    waits = _waits_of(executions)
    return {id: contents.Secrets(wait.inquiry.schema) for id, wait in waits.items()}


def age(row: Inquiry, now: datetime) -> str:
    """For how long it has been open, or was."""
    return words.span(((row.ended_at or now) - row.created_at).total_seconds())
