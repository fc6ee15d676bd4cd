"""The root of Muster's exceptions, and the kinds that every face can answer in general.

Each exception stands beside the code that raises it. A new one needs no row in any table: its base
class decides the API's answer, and every command prints its text.
"""

from __future__ import annotations

from typing import ClassVar


class MusterError(Exception):
    """Muster could not do what was asked."""

    def __init__(self, message: str | None = None) -> None:
        # a subclass's docstring is its message unless the raiser knows more
        super().__init__(message or (self.__doc__ or "").strip())


class NotFound(MusterError):
    """Nothing has this id or name. The API answers 404."""


class Forbidden(MusterError):
    """The caller is not permitted to do this. The API answers 403."""


class Conflict(MusterError):
    """The request is not possible in the present state. The API answers 409."""

    kind: ClassVar[str]
    """The last part of the problem's `type`, for programs."""
    retry_after_seconds: ClassVar[int | None] = None
    """The seconds after which a retry may succeed, if time alone can change the answer."""


class Unavailable(MusterError):
    """A server that this needs did not answer. The API answers 503."""

    kind: ClassVar[str]
    title: ClassVar[str]
    retry_after_seconds: ClassVar[int] = 2
