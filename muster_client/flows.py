"""The work of the clients, step by step, written once for both.

A flow is a generator: it yields requests and pauses, and gets the answer to each request. Who runs
it decides how to send and how to wait (`clients`).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Generator, Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeVar
from uuid import UUID

from muster_client.errors import (
    AlreadyOver,
    ExecutionDidNotComplete,
    InvalidArgument,
    Problem,
    StillOpen,
    Unavailable,
    UnexpectedAnswer,
    Unreachable,
)
from muster_client.executions import Event, Execution
from muster_client.patience import Patience
from muster_client.wire import Answer, NoAnswer, Pause, Request, problem_of

T = TypeVar("T")
Reply = Answer | NoAnswer | None
"""None is the reply to a pause."""
Flow = Generator[Request | Pause, Reply, T]
Story = Generator[Request | Pause | Event, Reply, None]
"""A flow that also yields events, for its caller."""

FIRST_LOOK_SECONDS = 0.05
LONGEST_LOOK_SECONDS = 1.0
"""The pauses between two looks at an execution, growing by half each time."""

LEAST_TRY_SECONDS = 1.0
"""The last look begins when the caller's time is over, and is answered all the same."""


def exchange(
    request: Request, patience: Patience, give_up_at: float = float("inf")
) -> Flow[Answer]:
    """Send a request until it is served or refused. Raises Unreachable, or a Problem.

    `give_up_at`: when the caller's time is over, for the try that is underway, too.

    What is repeated: a request without an answer; one that cannot be served at the moment (429,
    500 and above); one whose answer says after which time to repeat it. All that this client sends
    is safe to repeat, as each submit has an idempotency key.
    """
    last_try_at = min(time.monotonic() + patience.seconds, give_up_at)
    failures = 0
    while True:
        left_seconds = max(give_up_at - time.monotonic(), LEAST_TRY_SECONDS)
        reply = yield replace(request, most_seconds=left_seconds)
        if isinstance(reply, Answer) and reply.is_success:
            return reply
        failures += 1
        error, after_seconds = _failure(reply)
        pause_seconds = patience.pause(failures, retry_after_seconds=after_seconds)
        if not _may_pass(error) or time.monotonic() + pause_seconds > last_try_at:
            raise error
        yield Pause(pause_seconds)


def _failure(reply: Reply) -> tuple[Exception, float | None]:
    if isinstance(reply, Answer):
        return problem_of(reply), reply.retry_after_seconds
    why = reply.why if reply else "nothing"
    return Unreachable(f"No server answered: {why}"), None


def _may_pass(error: Exception) -> bool:
    """Return True for an error that time alone may change."""
    if isinstance(error, Problem) and error.retry_after_seconds is not None:
        return True
    return isinstance(error, Unreachable | Unavailable)


def submit(new: Mapping[str, Any], patience: Patience) -> Flow[Execution]:
    """Request one execution. Without an idempotency key of the caller it gets one, so that a lost
    answer never leads to a second execution."""
    answer = yield from exchange(Request("POST", "/executions", _with_key(new)), patience)
    return Execution.read(answer.json)


def submit_many(news: Iterable[Mapping[str, Any]], patience: Patience) -> Flow[list[UUID]]:
    """Request many in one transaction: all are accepted, or none."""
    body = {"executions": [_with_key(new) for new in news]}
    answer = yield from exchange(Request("POST", "/executions/bulk", body), patience)
    try:
        return [UUID(id) for id in answer.json["ids"]]
    except (KeyError, TypeError, ValueError):
        raise UnexpectedAnswer("the answer has no list of ids") from None


def _with_key(new: Mapping[str, Any]) -> dict[str, Any]:
    key = new.get("idempotency_key")
    return {**new, "idempotency_key": str(uuid.uuid4()) if key is None else key}


def get(id: UUID | str, patience: Patience, give_up_at: float = float("inf")) -> Flow[Execution]:
    request = Request("GET", f"/executions/{_checked(id)}")
    answer = yield from exchange(request, patience, give_up_at)
    return Execution.read(answer.json)


def cancel(id: UUID | str, patience: Patience) -> Flow[Execution]:
    """Cancel an execution. Raises AlreadyOver if it ended otherwise; one that is cancelled already,
    perhaps by a request whose answer was lost, is returned."""
    try:
        answer = yield from exchange(
            Request("POST", f"/executions/{_checked(id)}/cancel"), patience
        )
    except AlreadyOver:
        execution = yield from get(id, patience)
        if execution.status != "cancelled":
            raise
        return execution
    return Execution.read(answer.json)


def wait(id: UUID | str, patience: Patience, timeout_seconds: float | None) -> Flow[Execution]:
    """Look at an execution until it has ended. Raises StillOpen."""
    give_up_at = _until(timeout_seconds)
    look_seconds = FIRST_LOOK_SECONDS
    while not (execution := (yield from _look(id, patience, give_up_at))).is_over:
        yield _until_next_look(execution, look_seconds, give_up_at)
        look_seconds = min(look_seconds * 1.5, LONGEST_LOOK_SECONDS)
    return execution


def follow(id: UUID | str, patience: Patience, timeout_seconds: float | None) -> Story:
    """Yield each event of an execution's history as it happens, up to its end. Raises StillOpen."""
    give_up_at = _until(timeout_seconds)
    look_seconds = FIRST_LOOK_SECONDS
    seen = 0
    while True:
        execution = yield from _look(id, patience, give_up_at)
        for event in execution.history[seen:]:
            yield event
            look_seconds = FIRST_LOOK_SECONDS
        seen = len(execution.history)
        if execution.is_over:
            return
        yield _until_next_look(execution, look_seconds, give_up_at)
        look_seconds = min(look_seconds * 1.5, LONGEST_LOOK_SECONDS)


def run(
    new: Mapping[str, Any], patience: Patience, timeout_seconds: float | None
) -> Flow[Execution]:
    """Submit and wait. Raises ExecutionDidNotComplete, StillOpen."""
    accepted = yield from submit(new, patience)
    execution = yield from wait(accepted.id, patience, timeout_seconds)
    if not execution.is_completed:
        raise ExecutionDidNotComplete(execution)
    return execution


def _until(timeout_seconds: float | None) -> float:
    return float("inf") if timeout_seconds is None else time.monotonic() + timeout_seconds


def _look(id: UUID | str, patience: Patience, give_up_at: float) -> Flow[Execution]:
    """Look at an execution. Raises StillOpen for a look that is silent until the time is over."""
    try:
        return (yield from get(id, patience, give_up_at))
    except Unreachable as error:
        if time.monotonic() < give_up_at:
            raise
        raise StillOpen(f"{id} has not ended, as far as is known: {error}") from error


def _until_next_look(execution: Execution, look_seconds: float, give_up_at: float) -> Pause:
    left_seconds = give_up_at - time.monotonic()
    if left_seconds <= 0:
        raise StillOpen(f"{execution.action_ref} {execution.id} is still {execution.status}")
    return Pause(min(look_seconds, left_seconds))


def _checked(id: UUID | str) -> UUID:
    """The id, as nothing but an id may become a part of a path. Raises InvalidArgument."""
    try:
        return id if isinstance(id, UUID) else UUID(id)
    except (AttributeError, TypeError, ValueError):
        raise InvalidArgument(f"id: expected the UUID of an execution, found {id!r}") from None
