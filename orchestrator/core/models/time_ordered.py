"""Ids that begin with the time at which they were made (UUIDv7), as ranges of time."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

CLOCK_SKEW = timedelta(minutes=1)
"""An id is made by a process, `created_at` by the database: their clocks may differ by this."""


def uuid7_floor(at: datetime) -> UUID:
    """The smallest id that a UUIDv7 made at `at` can have."""
    return UUID(int=max(0, int(at.timestamp() * 1000)) << 80)
