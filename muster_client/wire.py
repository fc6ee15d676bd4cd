"""Requests and answers, without anything that sends them."""

from __future__ import annotations

import email.utils
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from muster_client.errors import (
    CLASSES,
    URN,
    InvalidArgument,
    Problem,
    Unavailable,
    UnexpectedAnswer,
)

SHOWN_CHARACTERS = 200


@dataclass(frozen=True)
class Request:
    """A request that is safe to repeat."""

    method: str
    path: str
    """Below `/api/v1`."""
    body: Mapping[str, Any] | None = None
    most_seconds: float = float("inf")
    """The time that its caller waits for the answer, at most."""

    @property
    def content(self) -> bytes | None:
        """The body as JSON. Raises InvalidArgument."""
        try:
            return None if self.body is None else json.dumps(self.body, allow_nan=False).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidArgument(f"The request cannot be written as JSON: {error}") from error


@dataclass(frozen=True)
class Pause:
    """A wait before the next step."""

    seconds: float


@dataclass(frozen=True)
class NoAnswer:
    """The connection failed, or broke, or stayed silent for too long."""

    why: str


@dataclass(frozen=True)
class Answer:
    """An answer of a server, whole."""

    status: int
    headers: Mapping[str, str]
    """Their names in lower case."""
    body: bytes

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300

    @property
    def json(self) -> dict[str, Any]:
        """Its body. Raises UnexpectedAnswer."""
        try:
            value = json.loads(self.body)
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise UnexpectedAnswer(f"{self.status} with a body that is not a JSON object")
        return value

    @property
    def retry_after_seconds(self) -> float | None:
        """The header `Retry-After`, of seconds or of a date; None if there is none that can be
        read."""
        stated = self.headers.get("retry-after", "").strip()
        if stated.isascii() and stated.isdigit():
            return float(stated)
        try:
            until = email.utils.parsedate_to_datetime(stated)
        except ValueError:
            return None
        if until.tzinfo is None:
            until = until.replace(tzinfo=UTC)
        return max((until - datetime.now(UTC)).total_seconds(), 0.0)


def problem_of(answer: Answer) -> Problem | UnexpectedAnswer:
    """The error for an answer that is no success. A proxy on the way answers without a body that
    is a problem."""
    body = _body(answer.body)
    if body is None and answer.status not in Unavailable.statuses:
        shown = answer.body[:SHOWN_CHARACTERS].decode("utf-8", "replace")
        return UnexpectedAnswer(f"{answer.status} without a problem, beginning with {shown!r}")
    body = body or {"title": "No answer of Muster", "detail": "a server on the way refused it"}
    kind = str(body.get("type", "")).removeprefix(URN)
    for each in CLASSES:
        if kind in each.kinds or answer.status in each.statuses:
            return each(answer.status, body, answer.retry_after_seconds)
    return Problem(answer.status, body, answer.retry_after_seconds)


def _body(written: bytes) -> dict[str, Any] | None:
    try:
        body = json.loads(written)
    except ValueError:
        return None
    return body if isinstance(body, dict) and "type" in body else None
