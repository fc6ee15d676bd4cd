"""Errors of the client. A problem that the API answers (RFC 9457) is raised as the class of its
`type`, or else of its status."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from muster_client.executions import Execution

URN = "urn:muster:problem:"


class MusterClientError(Exception):
    """The client could not do what was asked."""


class InvalidArgument(MusterClientError, ValueError):
    """An argument of the call cannot be sent. Nothing was sent."""


class Unreachable(MusterClientError):
    """No server answered. The request may have had its effect: repeat it with its key."""


class UnexpectedAnswer(MusterClientError):
    """The server that answered is not the API of Muster."""


class StillOpen(MusterClientError, TimeoutError):
    """The execution has not ended in the time that the caller gave it."""


class ExecutionDidNotComplete(MusterClientError):
    """The execution ended, but not as completed."""

    def __init__(self, execution: Execution) -> None:
        self.execution = execution
        message = execution.message or execution.reason
        super().__init__(f"{execution.action_ref} {execution.id} {execution.status}: {message}")


@dataclass(frozen=True)
class FieldProblem:
    """One fault of a request: a JSON pointer into its body, or `?name`, and what is wrong."""

    pointer: str
    message: str


class Problem(MusterClientError):
    """The API refused a request, or could not serve it."""

    statuses: ClassVar[tuple[int, ...]] = ()
    kinds: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self, status: int, body: dict[str, Any], retry_after_seconds: float | None
    ) -> None:
        self.status = status
        self.type = str(body.get("type", "about:blank"))
        self.title = str(body.get("title", ""))
        self.detail = str(body.get("detail", ""))
        self.errors = tuple(
            FieldProblem(str(each.get("pointer", "")), str(each.get("message", "")))
            for each in body.get("errors") or ()
        )
        self.retry_after_seconds = retry_after_seconds
        super().__init__(f"{status} {self.title}: {self.detail}")

    @property
    def kind(self) -> str:
        """The last part of `type`: stable, for programs."""
        return self.type.removeprefix(URN)


class Unauthorized(Problem):
    """No token, or one that is unknown, revoked or expired."""

    statuses = (401,)


class Forbidden(Problem):
    """The token's owner lacks a permission, which the detail names."""

    statuses = (403,)


class NotFound(Problem):
    """Nothing has this id, or the caller may not see it."""

    statuses = (404,)


class Conflict(Problem):
    """Not possible in the present state."""

    statuses: ClassVar[tuple[int, ...]] = (409,)


class IdempotencyConflict(Conflict):
    """The idempotency key belongs to another request."""

    statuses = ()
    kinds = ("idempotency-conflict",)


class AlreadyOver(Conflict):
    """The execution has ended: nothing is left to cancel."""

    statuses = ()
    kinds = ("already-over",)


class Invalid(Problem):
    """The request is not valid; `errors` has the place of each fault."""

    statuses = (400, 413, 415, 422)


class Unavailable(Problem):
    """The server cannot serve it at the moment, and could not while the client was patient."""

    statuses = (408, 429, 500, 502, 503, 504)


CLASSES: tuple[type[Problem], ...] = (
    IdempotencyConflict,
    AlreadyOver,
    Unauthorized,
    Forbidden,
    NotFound,
    Conflict,
    Invalid,
    Unavailable,
)
