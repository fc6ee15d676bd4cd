"""The time that decides: the database's. A machine's own clock decides nothing."""

from __future__ import annotations

from datetime import datetime

from django.db import connection
from django.utils import timezone


def now() -> datetime:
    """The database's clock, as an aware UTC datetime.

    Embedded, database and processes share one host and so one clock, and the query is saved.
    """
    if connection.vendor != "postgresql":
        return timezone.now()
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        (at,) = cursor.fetchone()
    return at  # type: ignore[no-any-return]
