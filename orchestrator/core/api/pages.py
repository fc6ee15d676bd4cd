"""Pages of a listing. A cursor names the last row of a page, so no row is skipped or repeated."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Annotated, Any, Protocol, TypeVar

from django.db.models import Model, QuerySet
from django.http import HttpRequest
from ninja import Path
from pydantic import AfterValidator, BaseModel, Field

from orchestrator.core import cursors
from orchestrator.core.api.problems import FieldProblem, invalid
from orchestrator.core.models.time_ordered import created_between

M = TypeVar("M", bound=Model)
Rows = TypeVar("Rows", bound=QuerySet[Any])
Out = TypeVar("Out", bound=BaseModel)

LIMIT_DEFAULT = 50
LIMIT_MAX = 500


def _without_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("contains a NUL character, which the database cannot store")
    return text


Text = Annotated[str, AfterValidator(_without_nul)]
"""Text to search for. PostgreSQL refuses the character 0 even in a query."""


RowId = Annotated[int, Path(ge=1, lt=2**63)]
"""A number of a row in a path."""


class PageQuery(BaseModel):
    """The parameters of every listing."""

    limit: int = Field(LIMIT_DEFAULT, ge=1, le=LIMIT_MAX, description="The most rows on this page.")
    cursor: Text | None = Field(
        None, max_length=200, description="`next_cursor` of the previous page; opaque."
    )


class Page(BaseModel):
    """The last fields of every listing."""

    next: str | None = Field(description="Path and query of the next page; null on the last one.")
    next_cursor: str | None


def newest_first(
    rows: QuerySet[M],
    query: PageQuery,
    *,
    key: Callable[[str], Any],
    offset: int = 0,
    among: QuerySet[M] | None = None,
) -> tuple[list[M], str | None]:
    """One page, newest first, and the cursor of the next one; `key` reads a primary key. For
    `offset` and `among` see `cursors.newest`."""
    last = below(query, key=key)
    return cursors.newest(rows, limit=query.limit, below=last, offset=offset, among=among)


class Created(Protocol):
    """A query that asks for rows of a time: from the first, and before the second."""

    created_after: datetime | None
    created_before: datetime | None


def created_within(rows: Rows, query: Created) -> Rows:
    """Those rows with a UUIDv7 that were created in the wanted time: their ids, which begin with
    it, lead to them."""
    rows = rows.filter(created_between(query.created_after, query.created_before))
    if query.created_before is not None:
        rows = rows.filter(created_at__lt=query.created_before)
    return rows


def below(query: PageQuery, *, key: Callable[[str], Any]) -> Any:
    """The primary key in the cursor of a page; None for the first page."""
    return None if query.cursor is None else _read(query.cursor, key)


def oldest_first(
    rows: QuerySet[M], query: PageQuery, *, key: Callable[[str], Any]
) -> tuple[list[M], str | None]:
    """One page, oldest first, and the cursor of the next one: for the listings of one row."""
    if query.cursor is not None:
        rows = rows.filter(pk__gt=_read(query.cursor, key))
    return cursors.cut(list(rows.order_by("pk")[: query.limit + 1]), query.limit)


def by_name(rows: QuerySet[M], query: PageQuery, *, field: str) -> tuple[list[M], str | None]:
    """One page in the order of a unique text, and the cursor of the next one."""
    if query.cursor is not None:
        rows = rows.filter(**{f"{field}__gt": _read(query.cursor, cursors.text)})
    return cursors.cut(list(rows.order_by(field)[: query.limit + 1]), query.limit, field=field)


def link(request: HttpRequest, cursor: str | None) -> str | None:
    """Path and query of the next page: this request's own filters, from the cursor on."""
    if cursor is None:
        return None
    query = request.GET.copy()
    query.pop("offset", None)  # these rows have been skipped
    query["cursor"] = cursor
    return f"{request.path}?{query.urlencode()}"


def each(model: type[Out], rows: Iterable[Any]) -> list[Out]:
    """Convert rows to the model of an answer."""
    return [model.model_validate(row) for row in rows]


def _read(cursor: str, key: Callable[[str], Any]) -> Any:
    try:
        return cursors.read(cursor, key)
    except cursors.InvalidCursor:
        message = "is not a cursor of this listing; use next_cursor of a page unchanged"
        raise invalid([FieldProblem(pointer="?cursor", message=message)]) from None
