"""Pages of a list: what its address asks for, its rows, and the links to the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Generic, TypeVar
from urllib.parse import urlencode
from uuid import UUID

from django.db.models import Model, QuerySet
from django.http import HttpRequest

from orchestrator.core import cursors

ROWS = 50
FIRST = "X-First"
"""The header with the first row of a list that is being read: what is newer is only counted."""
NEWER_MAX = 100
AGES = {
    "15m": timedelta(minutes=15),
    "1h": timedelta(hours=1),
    "24h": timedelta(days=1),
    "7d": timedelta(days=7),
}
"""The ages that a list may be narrowed to, by the word in the address."""
BEFORE, AFTER = "before", "after"
TYPED_MAX = 100
"""Characters of a text that is looked for: each of its words is a condition."""

Row = TypeVar("Row", bound=Model)
Key = TypeVar("Key")
Query = Mapping[str, str]


@dataclass(frozen=True)
class Listed(Generic[Row]):
    """A page of a list."""

    rows: Sequence[Row]
    older: str = ""
    """The query of the next page; empty at the end."""
    newer: int = 0
    first: object = ""
    """The key of the first row of a page that is kept up, see `FIRST`."""
    is_bounded: bool = False
    """True if only a part of the table was looked at."""

    @property
    def newer_text(self) -> str:
        """The number of rows that are newer, in words; empty for none."""
        if self.newer > NEWER_MAX:
            return f"more than {NEWER_MAX} newer"
        return f"{self.newer} newer" if self.newer else ""


def query_of(request: HttpRequest) -> dict[str, str]:
    """The filters of the address, without those that are empty."""
    given = {name: request.GET[name] for name in request.GET}
    return {name: text for name, text in given.items() if text}


def typed(request: HttpRequest, name: str = "q") -> str:
    """The text of the address that names are looked for by."""
    return request.GET.get(name, "").strip()[:TYPED_MAX]


def is_filtered(query: Query) -> bool:
    """Return True if the address asks for less than all."""
    return bool(query.keys() - {BEFORE, AFTER})


def newest(
    request: HttpRequest,
    rows: QuerySet[Row],
    among: QuerySet[Row] | None = None,
    *,
    key: Callable[[str], object] = UUID,
) -> Listed[Row]:
    """The newest of these rows, or those before the cursor of the address. What a filter without an
    index looks at is bounded: `among`, see `cursors.newest`."""
    query = query_of(request)
    first = parsed(request.headers.get(FIRST, ""), key)
    newer = 0
    if first is not None:
        later = rows.filter(pk__gt=first).order_by()
        rows = rows.filter(pk__lte=first)
        if among is not None:
            floor = cursors.last_looked_at(among.filter(pk__gt=first))
            later = later if floor is None else later.filter(pk__gte=floor)
            among = among.filter(pk__lte=first)
        newer = later[: NEWER_MAX + 1].count()
    below = cursor(query.get(BEFORE, ""), key)
    found, following = cursors.newest(rows, limit=ROWS, below=below, among=among)
    if first is None and found and below is None:
        first = found[0].pk
    older = urlencode({**query, BEFORE: following}) if following else ""
    return Listed(found, older, newer, "" if first is None else first, among is not None)


def by_name(request: HttpRequest, rows: QuerySet[Row], *, field: str = "ref") -> Listed[Row]:
    """The rows in the order of their names, after the name in the address."""
    query = query_of(request)
    after = cursor(query.get(AFTER, ""), cursors.text)
    if after is not None:
        rows = rows.filter(**{f"{field}__gt": after})
    found, following = cursors.cut(list(rows.order_by(field)[: ROWS + 1]), ROWS, field=field)
    return Listed(found, urlencode({**query, AFTER: following}) if following else "")


def cursor(text: str, key: Callable[[str], Key]) -> Key | None:
    """The place that a cursor of an address names; None for none, or for what is no cursor."""
    try:
        return cursors.read(text, key) if text else None
    except cursors.InvalidCursor:
        return None


def parsed(text: str, key: Callable[[str], Key]) -> Key | None:
    """A key that was given as text; None for none, or for what is no such key."""
    try:
        return key(text) if text else None
    except ValueError:
        return None
