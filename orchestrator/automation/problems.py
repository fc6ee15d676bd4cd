"""Problems with a document that describes a rule, a trigger or a timer."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from orchestrator.core import spelling
from orchestrator.core.errors import MusterError

Where = tuple[str | int, ...]
"""The path to a value: names and positions, from the top of the document."""

_PLAIN_NAME = re.compile(r"[\w-]+")


@dataclass(frozen=True)
class Problem:
    """One problem: its place in the document, and what was expected and found there."""

    where: Where
    message: str

    def __str__(self) -> str:
        place = place_of(self.where)
        return f"{place}: {self.message}" if place else self.message

    def below(self, *where: str | int) -> Problem:
        """The same problem, with the document at this place of a larger one."""
        return Problem((*where, *self.where), self.message)


class InvalidDocument(MusterError):
    """A document has problems, and nothing was made of it."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))


def place_of(where: Where) -> str:
    """Write a path as `all[0]['trigger.body.level'].pattern`."""
    place = ""
    for step in where:
        if isinstance(step, int):
            place += f"[{step}]"
        elif _PLAIN_NAME.fullmatch(step):
            place += f".{step}" if place else step
        else:
            place += f"[{step!r}]"
    return place


def nearest_or_all(name: str, known: Iterable[str]) -> str:
    """Name the nearest known name, or all of them."""
    names = list(known)
    near = spelling.near(name, names)
    return f"did you mean {near!r}?" if near else f"expected one of {', '.join(names)}"
