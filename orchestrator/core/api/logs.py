"""Output of executions: a part of it, or as a stream of Server-Sent Events until the end."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import AsyncIterator
from typing import Any, Literal
from uuid import UUID

from asgiref.sync import sync_to_async
from django.db import Error as DatabaseError
from django.db import close_old_connections
from django.http import HttpResponse, HttpResponseBase, StreamingHttpResponse
from ninja import Query, Router
from pydantic import BaseModel, ConfigDict, Field

from orchestrator.core import authority, executions
from orchestrator.core.api import problems
from orchestrator.core.api.access import AuthenticatedRequest, needs
from orchestrator.core.api.application import refuse_unknown_parameters
from orchestrator.core.api.problems import FieldProblem, invalid
from orchestrator.core.api.replies import documented, reply
from orchestrator.core.authority import PAYLOADS, Principal
from orchestrator.core.live_output import Follower
from orchestrator.core.models import Execution
from orchestrator.core.models.output import STREAMS
from orchestrator.core.shown import output as shown
from orchestrator.core.shown.output import Output

router = Router(tags=["executions"])

Stream = Literal["stdout", "stderr"]

LOOK_EVERY_SECONDS = 1.0
"""Workers write about as often."""
BEAT_SECONDS = 15.0
"""A stream that says nothing for longer is closed by many a proxy."""
LONGEST_SECONDS = 300.0
"""A stream then ends without its last event, and the reader, who connects again, is asked again who
it is."""
MOST_FOLLOWERS = 200
"""In one process."""
OFFSET_MAX = 2**53

_followers = itertools.count()
_open: set[int] = set()


class LogsQuery(BaseModel):
    """The place to read from."""

    model_config = ConfigDict(extra="forbid")

    stream: Stream = "stdout"
    attempt: int | None = Field(None, ge=1, le=2**31 - 1, description="null for the latest.")
    offset: int = Field(
        0, ge=0, le=OFFSET_MAX, description="`next_offset` of the part before; 0 to begin."
    )


class StreamQuery(BaseModel):
    """The output to follow."""

    model_config = ConfigDict(extra="forbid")

    stream: Stream | None = Field(None, description="null for both.")
    attempt: int | None = Field(
        None, ge=1, le=2**31 - 1, description="null for the latest, and all that follow."
    )


@router.get(
    "/{execution_id}/logs",
    auth=needs("executions.read"),
    response=documented(404, 422, _200=Output),
)
def get_logs(
    request: AuthenticatedRequest, execution_id: UUID, query: Query[LogsQuery]
) -> HttpResponse:
    """A part of what an execution has printed, also while it runs.

    The newest 64 KiB of each stream of each attempt are kept while it runs, and for
    `MUSTER_KEEP_OUTPUT_DAYS`; what ran for less than a second is read from its result.
    """
    refuse_unknown_parameters(request, LogsQuery)
    principal = request.auth.principal
    execution = _visible(execution_id, principal)
    output = shown.output(
        execution,
        attempt=_attempt(execution, query.attempt),
        stream=query.stream,
        offset=query.offset,
        seen_by=principal,
    )
    return reply(output)


EVENT = {
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        "event": {"enum": ["output", "end"]},
        "data": {"type": "string", "description": "JSON: a part, or the status and the reason."},
    },
    "required": ["id", "event", "data"],
}
"""An event of the stream, as a client of Server-Sent Events gets it."""


@router.get(
    "/{execution_id}/logs/stream",
    auth=needs("executions.read"),
    response=documented(404, 422, _200=None),
    openapi_extra={"responses": {200: {"content": {"text/event-stream": {"schema": EVENT}}}}},
)
def follow_logs(
    request: AuthenticatedRequest, execution_id: UUID, query: Query[StreamQuery]
) -> HttpResponseBase:
    """The output of an execution, as Server-Sent Events, from the beginning of what is kept.

    `event: output` has a part as JSON; its id, sent back as `Last-Event-ID`, is the place to go on
    from. `event: end` has the status, and comes last. A stream that ends without it lasted five
    minutes: connect again.
    """
    refuse_unknown_parameters(request, StreamQuery)
    execution = _visible(execution_id, request.auth.principal)
    streams = STREAMS if query.stream is None else (query.stream,)
    _attempt(execution, query.attempt)
    follower = Follower(execution.pk, attempt=query.attempt, streams=streams)
    place = request.headers.get("Last-Event-ID", "")
    if place and not follower.resume(place):
        message = f"expected the id of an event of this stream, found {place[:50]!r}"
        raise invalid([FieldProblem(pointer="Last-Event-ID", message=message)])
    if len(_open) >= MOST_FOLLOWERS:
        raise problems.too_many("This server has too many followers of output", 30)
    # each look asks again, but after the request: what the audit is to write is asked within it
    authority.may(request.auth.principal, PAYLOADS, execution.place)
    response = StreamingHttpResponse(
        _events(follower, request.auth.principal), content_type="text/event-stream"
    )
    response["X-Accel-Buffering"] = "no"  # nginx would gather it
    return response


async def _events(follower: Follower, principal: Principal) -> AsyncIterator[str]:
    number = next(_followers)
    _open.add(number)
    try:
        async for event in _until_its_end(follower, principal):
            yield event
    finally:
        _open.discard(number)


async def _until_its_end(follower: Follower, principal: Principal) -> AsyncIterator[str]:
    until = time.monotonic() + LONGEST_SECONDS
    beat_at = 0.0
    look = sync_to_async(_look)
    while time.monotonic() < until:
        events = await look(follower, principal)
        for event in events:
            yield event
        if follower.is_over:
            return
        if events:
            beat_at = time.monotonic() + BEAT_SECONDS
        elif time.monotonic() >= beat_at:
            beat_at = time.monotonic() + BEAT_SECONDS
            yield ": nothing new\n\n"
        await asyncio.sleep(LOOK_EVERY_SECONDS)


def _look(follower: Follower, principal: Principal) -> list[str]:
    """The events since the last look; none while the database is away."""
    try:
        return _new_events(follower, principal)
    except DatabaseError:
        # all followers share this thread and its connection, which no end of a request closes
        close_old_connections()
        return []


def _new_events(follower: Follower, principal: Principal) -> list[str]:
    events = []
    for part in follower.parts():
        assert follower.execution is not None
        content = shown.part(part, of=follower.execution, seen_by=principal)
        events.append(_event("output", content.model_dump(), id=follower.place))
    if follower.is_over:
        execution = follower.execution
        end = {"status": execution.status, "reason": execution.reason} if execution else {}
        events.append(_event("end", end, id=follower.place))
    return events


def _event(kind: str, content: Any, *, id: str) -> str:
    return f"id: {id}\nevent: {kind}\ndata: {json.dumps(content)}\n\n"


def _visible(execution_id: UUID, principal: Principal) -> Execution:
    rows = Execution.objects.defer("parameters", "result")
    execution = rows.filter(pk=execution_id).first()
    if execution is None or not authority.may(principal, "executions.read", execution.place):
        raise executions.UnknownExecution(f"No execution has the id {execution_id}")
    return execution


def _attempt(execution: Execution, wanted: int | None) -> int:
    """The attempt to read. Raises Problem (422) for one that has not begun."""
    if wanted is not None and wanted > execution.attempt:
        message = f"has no attempt {wanted} yet; the latest is {execution.attempt}"
        raise invalid([FieldProblem(pointer="?attempt", message=message)])
    return wanted or execution.attempt
