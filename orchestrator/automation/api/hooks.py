"""Webhooks: what others send to `/api/v1/hooks/PATH`."""

from __future__ import annotations

from functools import partial
from typing import Annotated
from uuid import UUID

from django.http import HttpRequest, HttpResponse, JsonResponse
from ninja import Path, Router
from pydantic import BaseModel, Field

from orchestrator.access import audit
from orchestrator.automation import receiving
from orchestrator.automation.hooks.deliveries import Delivery, Invalid, Refused
from orchestrator.automation.receiving import CameFrom
from orchestrator.automation.receiving.contents import FORM
from orchestrator.core import clock
from orchestrator.core.api import limits, problems
from orchestrator.core.api.access import address_of, authentication, open_because
from orchestrator.core.api.problems import FieldProblem, Problem
from orchestrator.core.api.replies import documented, reply
from orchestrator.core.authority import Principal

router = Router(tags=["webhooks"])

PREFIX = "/hooks/"
HookPath = Annotated[str, Path(description="The path of the hook; it may have several parts.")]


class Taken(BaseModel):
    """The event of a delivery, which is committed."""

    event_id: UUID
    duplicate: bool = Field(False, description="true: an earlier delivery made the event.")


SIGNED = open_because("Senders sign what they send; hooks of the profile `token` ask for a token.")
ANSWERS = documented(400, 404, 413, 415, 422, 429, _202=Taken, _200=Taken)
BODY = {
    "requestBody": {
        "required": False,
        "content": {"application/json": {"schema": {}}, FORM: {"schema": {"type": "object"}}},
    }
}


@router.post("/{path:path}", auth=SIGNED, response=ANSWERS, openapi_extra=BODY)
def receive_delivery(request: HttpRequest, path: HookPath) -> HttpResponse:
    """Take a delivery: 202 with its event, or 200 with the first one if it is a repetition. Rules
    answer it then. How it is signed, the profile of the hook says."""
    return _received(request, path)


@router.put("/{path:path}", auth=SIGNED, response=ANSWERS, openapi_extra=BODY)
def receive_delivery_by_put(request: HttpRequest, path: HookPath) -> HttpResponse:
    """The same, for senders that use PUT."""
    return _received(request, path)


def _received(request: HttpRequest, path: str) -> HttpResponse:
    audit.is_written_elsewhere()  # an event, or a count
    try:
        received = receiving.receive(
            Delivery(headers=_headers(request), body=request.body),
            path=path,
            came_from=_came_from(request),
            now=clock.now(),
        )
    except Refused as refused:
        raise _problem(refused) from None
    if received.event is None:
        return JsonResponse(received.answer or {})
    event = received.event
    taken = Taken(event_id=event.event_id, duplicate=not event.is_new)
    return reply(taken, status=202 if event.is_new else 200)


def admit(request: HttpRequest) -> None:
    """Raise, unless there is a hook that may take a body from this caller."""
    path = request.path.partition(PREFIX)[2]
    try:
        # the request is counted when its body is there
        receiving.admit(
            path,
            address=address_of(request),
            identify=partial(_authenticated, request),
            now=clock.now(),
        )
    except Refused as refused:
        raise _problem(refused) from None


def _came_from(request: HttpRequest) -> CameFrom:
    return CameFrom(address=address_of(request), identify=partial(_identified, request))


def _authenticated(request: HttpRequest) -> Principal:
    return authentication()(request).principal


def _identified(request: HttpRequest) -> Principal:
    principal = _authenticated(request)
    limits.require_room(principal)
    return principal


def _headers(request: HttpRequest) -> dict[str, str]:
    return {name.lower(): value for name, value in request.headers.items()}


def _problem(refused: Refused) -> Problem:
    seconds = refused.retry_after_seconds
    headers = {} if seconds is None else {"Retry-After": str(seconds)}
    if isinstance(refused, Invalid):
        return problems.invalid(
            FieldProblem(pointer=where, message=what) for where, what in refused.problems
        )
    if refused.status == 401:
        headers["WWW-Authenticate"] = "Signature"
    return Problem(refused.status, refused.kind, refused.title, refused.answer, headers=headers)
