"""Times that PostgreSQL returns: read by the driver itself, and no different for it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import psycopg
import pytest
from django.db import DEFAULT_DB_ALIAS, connection, connections
from psycopg.pq import Format

from orchestrator.core.statements import Statement

pytestmark = [
    pytest.mark.usefixtures("database"),
    pytest.mark.parametrize("database", ["postgresql"], indirect=True),
]

TIMES = [
    datetime(2026, 3, 29, 1, 30, 0, 1, tzinfo=UTC),
    datetime(2026, 10, 25, 2, 30, tzinfo=timezone(timedelta(hours=5, minutes=45))),
    datetime(1, 1, 1, tzinfo=UTC),
    datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
]
ECHO = Statement("SELECT %(at)s::timestamptz, NULL::timestamptz")


def asked(at: datetime) -> Any:
    with connection.cursor() as cursor:
        cursor.execute("SELECT %s::timestamptz, NULL::timestamptz", [at])
        return cursor.fetchone()


@pytest.mark.parametrize("at", TIMES, ids=str)
@pytest.mark.parametrize("is_prepared", [False, True])
def test_a_time_comes_back_in_utc(at: datetime, is_prepared: bool) -> None:
    found, missing = ECHO.execute({"at": at})[0] if is_prepared else asked(at)
    assert (found, found.tzinfo, missing) == (at, UTC, None)


def test_a_session_of_another_time_zone_reads_the_same_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By Django's own loader, as before."""
    session = connections[DEFAULT_DB_ALIAS]
    session.close()
    monkeypatch.setattr(session, "timezone", ZoneInfo("Asia/Kathmandu"))
    monkeypatch.setattr(session, "timezone_name", "Asia/Kathmandu")
    found, _ = asked(TIMES[0])
    assert (found, found.utcoffset()) == (TIMES[0], timedelta(hours=5, minutes=45))
    session.close()


def test_the_driver_itself_reads_them() -> None:
    asked(TIMES[0])
    oid, of_session = psycopg.adapters.types["timestamptz"].oid, connection.connection.adapters
    loader = of_session.get_loader(oid, Format.TEXT)(oid, connection.connection)
    assert type(loader) is psycopg.adapters.get_loader(oid, Format.TEXT)
