"""Pages of a listing: a cursor names the last row that was seen, so no row is skipped or twice."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated, Any, TypeVar

from django.db.models import Model, QuerySet
from django.http import HttpRequest
from pydantic import AfterValidator, BaseModel, Field

from orchestrator.core import cursors
from orchestrator.core.api.problems import FieldProblem, invalid

M = TypeVar("M", bound=Model)
Out = TypeVar("Out", bound=BaseModel)

LIMIT_DEFAULT = 50
LIMIT_MAX = 500


def _without_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("contains a NUL character, which no text in the database has")
    return text


Text = Annotated[str, AfterValidator(_without_nul)]
"""Text to look for. PostgreSQL refuses the character 0 even in a question."""


class PageQuery(BaseModel):
    """What every listing takes."""

    limit: int = Field(LIMIT_DEFAULT, ge=1, le=LIMIT_MAX, description="Most rows on this page.")
    cursor: Text | None = Field(
        None, max_length=200, description="`next_cursor` of the page before; opaque."
    )


class Page(BaseModel):
    """The end of every listing's answer."""

    next: str | None = Field(description="Path and query of the next page; null on the last one.")
    next_cursor: str | None


def newest_first(
    rows: QuerySet[M], query: PageQuery, *, key: Callable[[str], Any], offset: int = 0
) -> tuple[list[M], str | None]:
    """One page, newest first, and the cursor of the next one; `key` reads a primary key.

    `offset`: how many rows to pass over first, counted from the cursor if there is one.
    """
    if query.cursor is not None:
        rows = rows.filter(pk__lt=_read(query.cursor, key))
    return _cut(list(rows.order_by("-pk")[offset : offset + query.limit + 1]), query)


def oldest_first(
    rows: QuerySet[M], query: PageQuery, *, key: Callable[[str], Any]
) -> tuple[list[M], str | None]:
    """One page, oldest first, and the cursor of the next one: for what belongs to one row."""
    if query.cursor is not None:
        rows = rows.filter(pk__gt=_read(query.cursor, key))
    return _cut(list(rows.order_by("pk")[: query.limit + 1]), query)


def _cut(found: list[M], query: PageQuery) -> tuple[list[M], str | None]:
    if len(found) <= query.limit:
        return found, None
    return found[: query.limit], cursors.write(found[query.limit - 1].pk)


def link(request: HttpRequest, cursor: str | None) -> str | None:
    """Path and query of the next page: this request's own filters, from the cursor on."""
    if cursor is None:
        return None
    query = request.GET.copy()
    query.pop("offset", None)  # it has been passed over
    query["cursor"] = cursor
    return f"{request.path}?{query.urlencode()}"


def each(model: type[Out], rows: Iterable[Any]) -> list[Out]:
    """Rows as the API shows them."""
    return [model.model_validate(row) for row in rows]


def _read(cursor: str, key: Callable[[str], Any]) -> Any:
    try:
        return cursors.read(cursor, key)
    except cursors.InvalidCursor:
        message = "is not a cursor of this listing; take next_cursor of a page as it is"
        raise invalid([FieldProblem(pointer="?cursor", message=message)]) from None
