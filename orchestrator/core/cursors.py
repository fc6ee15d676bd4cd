"""Pages of listings, and their cursors: the key of the last row of a page, as text."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import Any, TypeVar

from django.db.models import Model, QuerySet

from orchestrator.core.errors import MusterError

ID_MAX = 2**63 - 1

LOOKED_AT_LIMIT = 100_000
"""A filter without an index looks at so many rows for a page, the newest ones."""

Key = TypeVar("Key")
Row = TypeVar("Row", bound=Model)


class InvalidCursor(MusterError):
    """Not a cursor of this listing; take the one that the page before ended with."""


def write(key: object) -> str:
    """Write the cursor of the page after the row with this key."""
    return base64.urlsafe_b64encode(str(key).encode()).rstrip(b"=").decode()


def read(text: str, key: Callable[[str], Key]) -> Key:
    """Read the key in a cursor; `key` parses it, and raises ValueError. Raises InvalidCursor."""
    try:
        padded = text.encode("ascii") + b"=" * (-len(text) % 4)
        return key(base64.b64decode(padded, altchars=b"-_", validate=True).decode())
    except (ValueError, binascii.Error):
        raise InvalidCursor from None


def text(text: str) -> str:
    """Take the key of rows with names. Raises ValueError."""
    if "\0" in text:
        raise ValueError
    return text


def whole_number(text: str) -> int:
    """Parse the key of numbered rows. Raises ValueError."""
    number = int(text)
    if not 0 < number <= ID_MAX:
        raise ValueError
    return number


# --- pages ---------------------------------------------------------------------------------------


def newest(
    rows: QuerySet[Row],
    *,
    limit: int,
    below: object | None = None,
    offset: int = 0,
    among: QuerySet[Row] | None = None,
) -> tuple[list[Row], str | None]:
    """A page of rows, the newest first, and the cursor of the next one.

    `below`: the primary key in the cursor of this page. `offset`: the rows to skip after it.
    `among`: for a filter without an index, all the rows that it looks at. Of these one page takes
    the newest `LOOKED_AT_LIMIT`, so it may be short, or even empty, and its cursor leads on.
    """
    floor = None
    if below is not None:
        rows = rows.filter(pk__lt=below)
    if among is not None:
        floor = last_looked_at(among if below is None else among.filter(pk__lt=below))
        rows = rows if floor is None else rows.filter(pk__gte=floor)
    page, following = cut(list(rows.order_by("-pk")[offset : offset + limit + 1]), limit)
    return page, following or (None if floor is None else write(floor))


def last_looked_at(rows: QuerySet[Row]) -> Any:
    """The primary key of the last of these that a filter without an index looks at, or None if it
    looks at all of them.

    It would read all of the table for a rare value, twice: to count, and to find a page.
    """
    keys = rows.order_by("-pk").values_list("pk", flat=True)
    return next(iter(keys[LOOKED_AT_LIMIT - 1 : LOOKED_AT_LIMIT]), None)


def cut(rows: list[Row], limit: int, *, field: str = "pk") -> tuple[list[Row], str | None]:
    """The rows of a page, of which one more was read than fits, and the cursor of the next one."""
    if len(rows) <= limit:
        return rows, None
    return rows[:limit], write(getattr(rows[limit - 1], field))
