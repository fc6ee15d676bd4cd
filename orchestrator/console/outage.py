"""Since when the database is away, as this process knows it: no table can say it."""

from __future__ import annotations

from datetime import UTC, datetime

_since: list[datetime] = []


def began() -> datetime:
    """Note that it does not answer; since when."""
    if not _since:
        _since.append(datetime.now(UTC))
    return _since[0]


def is_over() -> None:
    """Note that it answers."""
    _since.clear()
