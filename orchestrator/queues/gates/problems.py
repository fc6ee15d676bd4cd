"""A problem with a task message."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """A problem: what is wrong, and where."""

    pointer: str
    """A JSON pointer into the message, or `header NAME`; empty for the message as a whole."""
    text: str

    def __str__(self) -> str:
        return f"{self.pointer}: {self.text}" if self.pointer else self.text


def described(problems: Iterable[Problem]) -> str:
    """All of them in a line, for people."""
    return "; ".join(map(str, problems))
