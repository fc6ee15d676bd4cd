"""Problems in the form of RFC 9457: `application/problem+json`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus

from django.http import HttpRequest, HttpResponse
from pydantic import BaseModel, Field

from orchestrator.core.errors import Conflict, MusterError, Refused, Unavailable

CONTENT_TYPE = "application/problem+json"
INSTANCE_LIMIT = 500
ERROR_LIMIT = 100
"""Without a limit, a megabyte of refused executions could get ten megabytes of errors."""


class FieldProblem(BaseModel):
    """One fault of a request, and its place."""

    pointer: str = Field(
        description="JSON pointer into the body, or `?name` for a parameter of the query."
    )
    message: str
    position: int | None = Field(
        default=None, description="Of a search: its character at which the fault begins, from 0."
    )
    length: int | None = Field(
        default=None, description="Of a search: the characters of the fault."
    )


class ProblemDetails(BaseModel):
    """RFC 9457. `type` is stable, for programs; `detail` is for people."""

    type: str
    title: str
    status: int
    detail: str
    instance: str | None = None
    errors: list[FieldProblem] = []


@dataclass(eq=False)
class Problem(MusterError):
    """An error as the answer to a request."""

    status: int
    kind: str
    """The last part of `type`."""
    title: str
    detail: str
    errors: Sequence[FieldProblem] = ()
    headers: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__(self.detail)


def respond(request: HttpRequest, problem: Problem) -> HttpResponse:
    """Convert a problem to a response."""
    content = {
        "type": f"urn:muster:problem:{problem.kind}",
        "title": problem.title,
        "status": problem.status,
        "detail": problem.detail,
        "instance": request.path[:INSTANCE_LIMIT],
        "errors": [error.model_dump(exclude_none=True) for error in problem.errors],
    }
    return HttpResponse(
        json.dumps(content),
        status=problem.status,
        content_type=CONTENT_TYPE,
        headers=dict(problem.headers),
    )


def invalid(errors: Iterable[FieldProblem]) -> Problem:
    """The request could be read, but asks for something that is not possible."""
    errors = list(errors)
    detail = "; ".join(f"{error.pointer}: {error.message}" for error in errors[:3])
    more = f"; and {len(errors) - 3} more" if len(errors) > 3 else ""
    shown = errors[:ERROR_LIMIT]
    return Problem(422, "invalid", "The request is not valid", detail + more, shown)


def unauthorized(detail: str, *, challenge: str = "") -> Problem:
    """No token, or one that is not accepted."""
    headers = {"WWW-Authenticate": f'Bearer realm="muster"{challenge}'}
    return Problem(401, "unauthorized", "A token is needed", detail, headers=headers)


def forbidden(detail: str) -> Problem:
    """The caller lacks a permission, which the detail names."""
    return Problem(403, "forbidden", "Not permitted", detail)


def too_many(detail: str, retry_after_seconds: int) -> Problem:
    """The caller has used up what a limit allows for now."""
    headers = {"Retry-After": str(retry_after_seconds)}
    return Problem(429, "too-many-requests", "Too many requests", detail, headers=headers)


def not_found(detail: str) -> Problem:
    """Nothing has this id, or there is no such route."""
    return Problem(404, "not-found", "Not found", detail)


def too_large(limit_bytes: int) -> Problem:
    """The body is larger than the server accepts."""
    return Problem(
        413,
        "too-large",
        "The request is too large",
        f"A request body has at most {limit_bytes} bytes; split it, or raise "
        "MUSTER_MAX_REQUEST_BYTES on the server",
    )


def database_unavailable() -> Problem:
    """The database is down, or too slow."""
    return Problem(
        503,
        "database-unavailable",
        "The database did not answer",
        "Try again. The request may still have had its effect; with an idempotency_key it is "
        "safe to repeat",
        headers={"Retry-After": "2"},
    )


def database_read_only() -> Problem:
    """The database answers, but takes no writes."""
    return Problem(
        503,
        "database-unavailable",
        "The database takes no writes",
        "It is read-only at the moment: nothing was done. Try again",
        headers={"Retry-After": "5"},
    )


def refused(error: Refused) -> Problem:
    """The problem that a body was refused; each place is one in the body. A body of several items
    names them itself."""
    return invalid(
        FieldProblem(pointer=each.pointer, message=each.message) for each in error.refusals
    )


def conflict(error: Conflict) -> Problem:
    """It is not possible in the present state; the error says why."""
    seconds = error.retry_after_seconds
    headers = {} if seconds is None else {"Retry-After": str(seconds)}
    title = "Not possible in the present state"
    return Problem(409, error.kind, title, str(error), headers=headers)


def unavailable(error: Unavailable) -> Problem:
    """A server that the request needs is down."""
    headers = {"Retry-After": str(error.retry_after_seconds)}
    return Problem(503, error.kind, error.title, str(error), headers=headers)


def internal() -> Problem:
    """A fault of the server. The details are in the log, not in the answer."""
    return Problem(
        500,
        "internal",
        "Something went wrong on the server",
        "The server's log has the details. The request may have had its effect",
    )


def plain(status: int, detail: str, **headers: str) -> Problem:
    """A problem that needs no more than its status."""
    phrase = HTTPStatus(status).phrase
    return Problem(status, phrase.lower().replace(" ", "-"), phrase, detail, headers=headers)
