"""The time that decides: the database's. A machine's own clock decides nothing."""

from __future__ import annotations

import time
from datetime import datetime, timedelta

from django.db import connection
from django.utils import timezone

ASK_EVERY_SECONDS = 5.0

_asked: tuple[float, datetime] | None = None


def now() -> datetime:
    """The database's clock, as an aware UTC datetime.

    PostgreSQL is asked every five seconds; in between, what this machine has counted since is
    added, never what it believes the time to be. Embedded, database and processes share one host
    and so one clock.
    """
    global _asked
    if connection.vendor != "postgresql":
        return timezone.now()
    counted = _seconds_counted()
    if _asked is None or not 0 <= counted - _asked[0] < ASK_EVERY_SECONDS:
        with connection.cursor() as cursor:
            counted = _seconds_counted()  # not before: it may have had to connect
            cursor.execute("SELECT clock_timestamp()")
            (at,) = cursor.fetchone()
        _asked = (counted, at)
    asked_at, at = _asked
    return at + timedelta(seconds=counted - asked_at)


def _seconds_counted() -> float:
    """A clock that cannot be set, and that goes on while the machine is suspended."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
