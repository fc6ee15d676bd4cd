"""Orders on more rows than one request changes: each batch is a request, and the page between two
says how far it is and carries it on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.core.exceptions import BadRequest, ValidationError
from django.db.models import Model, QuerySet
from django.http import QueryDict

from orchestrator.core.admin.listing import COUNT_LIMIT
from orchestrator.core.errors import MusterError

ROWS_AT_ONCE = 500
"""A request changes no more than this."""

SHOWN_ERRORS = 5
FROM, BELOW, TOTAL, DONE, REFUSED, REFUSAL = (
    "_from", "_below", "_total", "_done", "_refused", "_refusal",
)  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """The number of rows that a verb was called for and that it refused, and its first refusals."""

    done: int = 0
    refused: int = 0
    refusals: tuple[str, ...] = ()

    def __add__(self, other: Outcome) -> Outcome:
        refusals = (self.refusals + other.refusals)[:SHOWN_ERRORS]
        return Outcome(self.done + other.done, self.refused + other.refused, refusals)

    def __str__(self) -> str:
        return f"{self.done:,} done, {self.refused:,} refused"

    @property
    def looked_at(self) -> int:
        return self.done + self.refused


def do_each(rows: Sequence[Any], verb: Callable[[Any], Any]) -> Outcome:
    """Call the verb for each row."""
    refusals = []
    for row in rows:
        try:
            verb(row)
        except MusterError as error:
            refusals.append(f"{row}: {error}")
    return Outcome(len(rows) - len(refusals), len(refusals), tuple(refusals[:SHOWN_ERRORS]))


@dataclass(frozen=True)
class Order:
    """All rows that match a list's filter, from the newest at the time of the order to the oldest.
    What comes later is not touched; what stops to match before its turn is left out."""

    start: str
    """The primary key of the newest."""
    below: str = ""
    """That of the last row that was looked at."""
    total: int = 0
    """The rows at the time of the order, counted up to `COUNT_LIMIT`."""
    so_far: Outcome = Outcome()

    @classmethod
    def on(cls, rows: QuerySet[Any]) -> Order:
        """A new order. `rows` are not empty."""
        newest = rows.order_by("-pk").values_list("pk", flat=True)[:1].get()
        return cls(str(newest), total=rows.order_by()[:COUNT_LIMIT].count())

    @classmethod
    def read(cls, posted: QueryDict) -> Order | None:
        """The order that a page carries on, or None. Raises BadRequest."""
        start, below = (str(posted.get(name, "")) for name in (FROM, BELOW))
        if not start:
            return None
        try:
            total, done, refused = (
                int(str(posted.get(name, 0))) for name in (TOTAL, DONE, REFUSED)
            )
        except ValueError:
            raise BadRequest("Expected whole numbers of rows") from None
        refusals = tuple(posted.getlist(REFUSAL))[:SHOWN_ERRORS]
        so_far = Outcome(done, refused, refusals)
        return cls(start, below, total, so_far)

    def written(self) -> Iterator[tuple[str, Any]]:
        """The fields of a form that `read` reads."""
        yield from ((FROM, self.start), (BELOW, self.below), (TOTAL, self.total))
        yield from ((DONE, self.so_far.done), (REFUSED, self.so_far.refused))
        yield from ((REFUSAL, text) for text in self.so_far.refusals)

    def batch(self, rows: QuerySet[Any]) -> list[Any]:
        """The next rows of those that match now."""
        bounds = {"pk__lte": self.start} | ({"pk__lt": self.below} if self.below else {})
        try:
            return list(rows.filter(**bounds).order_by("-pk")[:ROWS_AT_ONCE])
        except (ValidationError, ValueError):
            raise BadRequest("Expected the primary key of a row") from None

    def after(self, batch: Sequence[Model], outcome: Outcome) -> Order:
        """The order as it is after this batch."""
        return replace(self, below=str(batch[-1].pk), so_far=self.so_far + outcome)

    @property
    def size(self) -> str:
        """The number of its rows, in words."""
        return f"{self.total:,}{' or more' if self.total >= COUNT_LIMIT else ''}"

    @property
    def progress(self) -> str:
        return f"{self.so_far.looked_at:,} of {self.size}"
