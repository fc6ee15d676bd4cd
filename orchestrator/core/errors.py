"""The root of Muster's exceptions, and the kinds that every face can answer in general.

Each exception stands beside the code that raises it. A new one needs no row in any table: its base
class decides the API's answer, and every command prints its text.
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar


class MusterError(Exception):
    """Muster could not do what was asked."""

    def __init__(self, message: str | None = None) -> None:
        # a subclass's docstring is its message unless the raiser knows more
        super().__init__(message or (self.__doc__ or "").strip())


@dataclass(frozen=True)
class Refusal:
    """One problem with what was sent: with which item, where in it, and what is wrong."""

    index: int
    pointer: str
    """JSON pointer into that item, such as `/parameters/seconds`."""
    message: str


class Refused(MusterError):
    """The input was refused as a whole and left no row. The API answers 422."""

    def __init__(self, refusals: Sequence[Refusal]) -> None:
        problems = [f"{r.pointer}: {r.message}" for r in refusals[:3]]
        if len(refusals) > len(problems):
            problems.append(f"and {len(refusals) - len(problems)} more")
        super().__init__("; ".join(problems))
        self.refusals = list(refusals)


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


def kind_and_place(error: BaseException) -> str:
    """The type of an exception, and the place where it was raised. Its text may quote a secret:
    that is for the log."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}{place}"
