"""The values that one evaluation looks at, and the work that it may still do."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from orchestrator.core import expressions
from orchestrator.core.errors import MusterError

ELEMENT_LIMIT = 1_000
"""Elements of one list that `search` looks at."""
SEARCH_LIMIT = 200_000
"""Criteria that all searches of one evaluation check, and a further one for each 64 characters or
elements of what they check."""
MATCHING_LIMIT = 100_000_000
"""States times characters of all regular expressions: RE2 takes at most about 10 ns for each."""
COMPILING_STATES = 12_000
r"""The charge for compiling one character of a regular expression. Most take a thousandth of it,
some, such as `\pL`, all of it."""
PATTERN_LIMIT = 4_194_304
"""Characters and items of all patterns that are made for one event."""
EXPRESSION_SECONDS = 1.0
"""Processor time of all patterns that are expressions."""

TOO_WIDE = "payload_too_wide"
TOO_COSTLY = "criteria_too_costly"
FAILED = "criteria_failed"


class Broken(MusterError):
    """The evaluation has no answer."""

    def __init__(self, reason: str, message: str) -> None:
        self.reason = reason
        super().__init__(message)


def broken_by(error: Exception) -> Broken:
    """The meaning of an exception that an evaluation has raised."""
    if isinstance(error, Broken):
        return error
    return Broken(FAILED, f"the evaluation failed with {type(error).__name__}: {error!s:.200}")


class Work:
    """The work that is left to one evaluation. It is counted, so every evaluation ends, and at the
    same point each time."""

    __slots__ = ("_budget", "_compiled", "matching", "searching")

    def __init__(self) -> None:
        self.searching = SEARCH_LIMIT
        self.matching = MATCHING_LIMIT
        self._budget: expressions.Budget | None = None
        self._compiled: set[str] = set()

    @property
    def budget(self) -> expressions.Budget:
        """The budget of the patterns that are expressions."""
        if self._budget is None:
            self._budget = expressions.Budget(limit=PATTERN_LIMIT, seconds=EXPRESSION_SECONDS)
        return self._budget

    def check_expressions(self) -> None:
        """Raise Broken if the budget is used up, and not only a value is missing."""
        budget = self.budget
        if budget.spent > budget.limit or budget.is_late:
            raise Broken(TOO_COSTLY, "its expressions take too long on a payload of this size")

    def match(self, states: int, characters: int) -> None:
        """Charge for matching a text against a regular expression. Raises Broken."""
        self.matching -= states * characters
        if self.matching < 0:
            raise Broken(TOO_COSTLY, "its regular expressions take too long on texts of this size")

    def compile(self, pattern: str) -> None:
        """Charge for a regular expression that is made for this event. Raises Broken."""
        if pattern not in self._compiled:
            self._compiled.add(pattern)
            self.match(COMPILING_STATES, len(pattern))

    def search(self, value: Any) -> None:
        """Charge for one criterion inside of a search. Raises Broken."""
        size = len(value) if isinstance(value, str | list | dict) else 0
        self.searching -= 1 + size // 64
        if self.searching < 0:
            raise Broken(TOO_COSTLY, "its searches take too long on a payload of this size")


class Scope:
    """The values that paths begin with, and the work that is left."""

    __slots__ = ("received_at", "roots", "work")

    def __init__(self, roots: dict[str, Any], received_at: datetime, work: Work) -> None:
        self.roots = roots
        self.received_at = received_at
        self.work = work

    def with_all_work(self) -> Scope:
        """The same, with all of the work left."""
        return Scope(self.roots, self.received_at, Work())

    def of_item(self, item: Any) -> Scope:
        """The same inside of a search, at one element."""
        return Scope(self.roots | {"item": item}, self.received_at, self.work)
