"""Ranges of time as ranges of ids that begin with their creation time (UUIDv7)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

from django.db.models import Q, TextField, Value
from django.db.models.functions import Cast, Replace
from django.db.models.lookups import EndsWith

CLOCK_SKEW = timedelta(minutes=1)
"""A process creates the id, the database `created_at`: their clocks may differ by this."""


def uuid7_floor(at: datetime) -> UUID:
    """The smallest id that a UUIDv7 (RFC 9562, section 5.7) made at `at` can have: with it the
    primary key serves the rows of a time."""
    return UUID(int=max(0, int(at.timestamp() * 1000)) << 80)


def made_at(id: UUID) -> datetime:
    """The time in a UUIDv7, in whole milliseconds."""
    return datetime.fromtimestamp((id.int >> 80) / 1000, UTC)


def ids_beginning_with(digits: str) -> tuple[UUID, UUID]:
    """The smallest and the largest id that begin with these hexadecimal digits, at most 32."""
    return UUID(digits.ljust(32, "0")), UUID(digits.ljust(32, "f"))


def id_ends_with(digits: str) -> EndsWith:
    """A condition for rows whose id ends with these hexadecimal digits. No index serves it."""
    # PostgreSQL writes an id with dashes, SQLite keeps it without
    text = Replace(Cast("pk", TextField()), Value("-"), Value(""), output_field=TextField())
    return EndsWith(text, digits)


def created_between(
    start: datetime | None, end: datetime | None, *, field: str = "created_at"
) -> Q:
    """A condition for rows with a UUIDv7 created in a range of time; either end may be open.
    `field`: the time at which they were."""
    wanted = Q()
    if start is not None:
        wanted &= Q((f"{field}__gte", start), pk__gte=uuid7_floor(start - CLOCK_SKEW))
    if end is not None:
        wanted &= Q((f"{field}__lte", end), pk__lte=uuid7_floor(end + CLOCK_SKEW))
    return wanted
