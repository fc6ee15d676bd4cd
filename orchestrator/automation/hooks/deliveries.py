"""Deliveries as they come in, and the reasons for which one is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from orchestrator.core.errors import MusterError


class Outcome(StrEnum):
    """An outcome of a delivery. Their number is fixed, so that they can be counted."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    KEPT_INVALID = "kept_invalid"
    ANSWERED = "answered"
    UNSIGNED = "unsigned"
    TOO_OLD = "too_old"
    NOT_PERMITTED = "not_permitted"
    UNREADABLE = "unreadable"
    INVALID = "invalid"
    NO_SECRET = "no_secret"  # noqa: S105 - an outcome
    TOO_MANY = "too_many"
    BUSY = "busy"
    UNKNOWN_PATH = "unknown_path"


TAKEN = frozenset({Outcome.ACCEPTED, Outcome.DUPLICATE, Outcome.KEPT_INVALID, Outcome.ANSWERED})
"""The sender has an answer of 2xx, and will not send it again."""


@dataclass(frozen=True)
class Delivery:
    """A delivery as it came in, not believed yet."""

    headers: Mapping[str, str]
    """By names in lower case. A header that came twice has both values, with a comma."""
    body: bytes

    def header(self, name: str) -> str:
        """The value of a header, without blanks around it; empty if there is none."""
        return self.headers.get(name, "").strip()


class Refused(MusterError):
    """The delivery was refused, and nothing was recorded."""

    outcome: ClassVar[Outcome]
    status: ClassVar[int]
    kind: ClassVar[str]
    """The last part of the problem's `type`."""
    title: ClassVar[str]
    retry_after_seconds: ClassVar[int | None] = None
    is_for_senders: ClassVar[bool] = True
    """True if the message may be sent to a stranger."""

    @property
    def answer(self) -> str:
        """The message for the sender."""
        return str(self) if self.is_for_senders else (type(self).__doc__ or "")


class NotSigned(Refused):
    """The signature is missing, or is not that of this body."""

    outcome, status = Outcome.UNSIGNED, 401
    kind, title = "not-signed", "The signature is not valid"


class TooOld(Refused):
    """The signature is of another time."""

    outcome, status = Outcome.TOO_OLD, 401
    kind, title = "too-old", "The signature is of another time"


class Unreadable(Refused):
    """The delivery is signed, and cannot be read."""

    outcome, status = Outcome.UNREADABLE, 400
    kind, title = "unreadable", "The delivery cannot be read"


class NoSecret(Refused):
    """No secret of this hook can be opened, so nothing can be checked."""

    outcome, status = Outcome.NO_SECRET, 503
    kind, title = "no-secret", "The hook cannot check signatures"
    retry_after_seconds = 60
    is_for_senders = False  # it names keys, and the file of the ring


class TooMany(Refused):
    """The hook takes no more deliveries for now."""

    outcome, status = Outcome.TOO_MANY, 429
    kind, title = "too-many-requests", "Too many deliveries"
    retry_after_seconds = 10


class UnknownPath(Refused):
    """No hook has this path."""

    outcome, status = Outcome.UNKNOWN_PATH, 404
    kind, title = "not-found", "Not found"


class Invalid(Refused):
    """The body does not fit the schema of the hook."""

    outcome, status = Outcome.INVALID, 422
    kind, title = "invalid", "The request is not valid"

    def __init__(self, problems: list[tuple[str, str]]) -> None:
        """Each problem is a JSON pointer and a sentence."""
        super().__init__("; ".join(f"{where}: {what}" for where, what in problems[:3]))
        self.problems = problems
