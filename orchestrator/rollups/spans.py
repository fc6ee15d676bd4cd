"""Spans of time: minutes, quarters and hours of UTC."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


def start_of(at: datetime, minutes: int) -> datetime:
    """The start of the span of this length in which a time is."""
    midnight = at.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    length = timedelta(minutes=minutes)
    return midnight + (at - midnight) // length * length
