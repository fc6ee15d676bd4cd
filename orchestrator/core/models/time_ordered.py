"""Ranges of time as ranges of ids that begin with their creation time (UUIDv7)."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

CLOCK_SKEW = timedelta(minutes=1)
"""A process creates the id, the database `created_at`: their clocks may differ by this."""


def uuid7_floor(at: datetime) -> UUID:
    """The smallest id that a UUIDv7 (RFC 9562, section 5.7) made at `at` can have: with it the
    primary key serves the rows of a time."""
    return UUID(int=max(0, int(at.timestamp() * 1000)) << 80)
