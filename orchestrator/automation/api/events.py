"""Events: report, list, show, replay."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.conf import settings
from django.http import HttpResponse
from ninja import Body, Query, Router
from pydantic import BaseModel, ConfigDict, Field

from orchestrator.automation import listing, reporting
from orchestrator.automation.api import rules
from orchestrator.automation.models import Event
from orchestrator.automation.recording import LONGEST_TEXTS, EventsRefused
from orchestrator.automation.reporting import Report
from orchestrator.automation.shown import answers
from orchestrator.automation.shown import events as shown
from orchestrator.automation.shown.answers import EventAccepted
from orchestrator.automation.shown.events import EventShown
from orchestrator.core.api import pages, problems
from orchestrator.core.api.access import AuthenticatedRequest, needs
from orchestrator.core.api.application import refuse_unknown_parameters
from orchestrator.core.api.executions import Moment
from orchestrator.core.api.problems import FieldProblem, Problem
from orchestrator.core.api.replies import documented, reply

router = Router(tags=["events"])

SOURCE = "api"


class TriggerNamed(BaseModel):
    """A trigger: a type with parameters."""

    model_config = ConfigDict(extra="forbid", strict=True)

    type: pages.Text = Field(min_length=1, max_length=130, examples=["watch.deployed"])
    parameters: dict[str, Any] = Field(
        {}, description="Those of the trigger; none for a type without parameters."
    )


class NewEvent(BaseModel):
    """Something that happened."""

    model_config = ConfigDict(extra="forbid", strict=True)

    trigger: TriggerNamed
    payload: dict[str, Any] = Field({}, description="Checked against the type's payload_schema.")
    key: str | None = Field(
        None,
        min_length=1,
        max_length=LONGEST_TEXTS["key"],
        description="A second report of the trigger with the same key is the first event.",
    )
    occurred_at: Moment | None = Field(
        None, strict=False, description="Shown; nothing depends on it."
    )
    correlation_id: str | None = Field(
        None,
        min_length=1,
        max_length=LONGEST_TEXTS["correlation_id"],
        description="Passed on to the executions that answer it.",
    )


class NewEvents(BaseModel):
    """Several events: all of them are recorded, or none."""

    model_config = ConfigDict(extra="forbid", strict=True)

    events: list[NewEvent] = Field(min_length=1)


class AcceptedEvents(BaseModel):
    """The outcome of each report, in the order of the reports."""

    events: list[EventAccepted]


class Replay(BaseModel):
    """The rules to ask again."""

    model_config = ConfigDict(extra="forbid", strict=True)

    rule: pages.Text | None = Field(None, description="Only this one; by default all.")


class EventPage(pages.Page):
    items: list[EventShown]


class EventQuery(pages.PageQuery):
    """Filters; all of them must hold."""

    type: pages.Text | None = Field(None, description="The type of their trigger.")
    trigger_id: int | None = Field(None, ge=1, lt=2**63)
    key: pages.Text | None = None
    source: pages.Text | None = None
    correlation_id: pages.Text | None = None
    received_after: Moment | None = Field(
        None, description="At or after this time, with a time zone."
    )
    received_before: Moment | None = Field(None, description="Before this time, with a time zone.")
    evaluated: bool | None = Field(None, description="false for those that wait for the rules.")


@router.post(
    "",
    auth=needs("events.send"),
    response=documented(409, _201=EventAccepted, _200=EventAccepted),
)
def report_event(request: AuthenticatedRequest, new: Body[NewEvent]) -> HttpResponse:
    """Record an event: 201, or 200 with the first one if its key was used. Rules answer it then.

    503 with Retry-After while so many events wait for the rules that more would only wait longer.
    """
    (accepted,) = _record(request, [new], at="")
    return reply(
        accepted,
        status=201 if accepted.is_new else 200,
        location=f"{request.path}/{accepted.id}",
    )


@router.post("/bulk", auth=needs("events.send"), response=documented(409, _201=AcceptedEvents))
def report_events(request: AuthenticatedRequest, new: Body[NewEvents]) -> HttpResponse:
    """Record many events in one transaction: all of them, or none."""
    limit = settings.MUSTER.bulk_limit
    if len(new.events) > limit:
        message = f"expected at most {limit} events, found {len(new.events)}"
        raise problems.invalid([FieldProblem(pointer="/events", message=message)])
    return reply(AcceptedEvents(events=_record(request, new.events, at="/events/")), status=201)


@router.get("", auth=needs("events.read"), response=documented(422, _200=EventPage))
def list_events(request: AuthenticatedRequest, query: Query[EventQuery]) -> HttpResponse:
    """Events, newest first.

    For a type, a key without a trigger, a source or a time, a page looks at 100,000 of those that
    match the other filters: it may be short, or even empty, and `next` leads on to older ones until
    it is null.
    """
    refuse_unknown_parameters(request, EventQuery)
    principal = request.auth.principal
    wanted = query.model_dump(exclude={"limit", "cursor"})
    rows, among = listing.events(Event.objects.visible_to(principal), **wanted)
    found, cursor = pages.newest_first(
        rows.select_related("trigger__type"), query, key=UUID, among=among
    )
    items = [shown.shown(row, seen_by=principal) for row in found]
    return reply(EventPage(items=items, next=pages.link(request, cursor), next_cursor=cursor))


@router.get("/{event_id}", auth=needs("events.read"), response=documented(404, _200=EventShown))
def get_event(request: AuthenticatedRequest, event_id: UUID) -> HttpResponse:
    """One event; the answers to it are `GET /enforcements?event_id=`."""
    return reply(shown.shown(rules.known_event(request, event_id), seen_by=request.auth.principal))


@router.post(
    "/{event_id}/replay",
    auth=needs("events.send"),
    response=documented(404, 409, 422, _201=EventAccepted),
)
def replay_event(
    request: AuthenticatedRequest, event_id: UUID, replay: Body[Replay | None] = None
) -> HttpResponse:
    """Have the rules asked about it again, as they are now: a new event with the same content."""
    event = rules.known_event(request, event_id, "events.send")
    ref = None if replay is None else replay.rule
    if ref is not None:
        rules.known(request, ref)
    caller = request.auth
    try:
        recorded = reporting.replay(event, rule_ref=ref, principal=caller.principal, now=caller.now)
    except EventsRefused as refused:
        # what is wrong stands in the event, not in the body
        raise problems.invalid([FieldProblem(pointer="", message=str(refused))]) from None
    location = request.path.replace(str(event_id), str(recorded.event_id), 1)
    return reply(answers.accepted(recorded), status=201, location=location.removesuffix("/replay"))


def _record(request: AuthenticatedRequest, news: list[NewEvent], *, at: str) -> list[EventAccepted]:
    caller = request.auth
    try:
        recorded = reporting.report_many(
            [_report(new) for new in news], source=SOURCE, principal=caller.principal,
            now=caller.now,
        )  # fmt: skip
    except EventsRefused as refused:
        raise _refused(refused, at=at) from None
    return [answers.accepted(each) for each in recorded]


def _report(new: NewEvent) -> Report:
    values = dict(new)
    trigger = values.pop("trigger")
    return Report(trigger_type=trigger.type, trigger_parameters=trigger.parameters, **values)


def _refused(refused: EventsRefused, *, at: str) -> Problem:
    """`at`: where in the body the list of reports is; empty if the body is the report."""
    return problems.invalid(
        FieldProblem(
            pointer=f"{at}{each.index}{each.pointer}" if at else each.pointer,
            message=each.message,
        )
        for each in refused.refusals
    )
