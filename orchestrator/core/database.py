"""The database connection: its errors, its fingerprint, and the wait until it is reachable."""

from __future__ import annotations

import hashlib
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC
from functools import partial
from typing import Any, TypeVar

import structlog
from django.db import close_old_connections, connection, transaction
from django.db.utils import InterfaceError, InternalError, OperationalError
from psycopg import adapters
from psycopg.abc import AdaptContext
from psycopg.pq import Format

from orchestrator.core.errors import MusterError

T = TypeVar("T")

log = structlog.get_logger(__name__)

FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 5.0

BRIEF_MS = 4_000
"""Less than an interval of maintenance: what the second-last tick could not lock is free for the
last one."""

LOCK_NOT_AVAILABLE = "55P03"
READ_ONLY = "25006"
IDLE_IN_TRANSACTION = "25P03"
SERIALIZATION_FAILURE = "40001"
DEADLOCK_DETECTED = "40P01"
QUERY_CANCELED = "57014"

CAUSED_BY_DATA = frozenset({"22", "23", "42", "54"})
"""Classes of `sqlstate` that are the same at each repetition: data, constraint, syntax, limit."""


def sqlstate(error: Exception) -> str:
    """PostgreSQL's code of this error, five letters and digits; empty if there is none.

    https://www.postgresql.org/docs/current/errcodes-appendix.html
    """
    return getattr(error.__cause__, "sqlstate", None) or ""


def is_outage(error: Exception) -> bool:
    """Return True if this is an error of the database that no data is to blame for: the same may
    pass later.

    The connection was lost, a row is held, the server is read-only, full or shutting down. It is no
    outage if the session was ended because its transaction stood idle: whoever held it computed for
    too long.
    """
    if isinstance(error, InternalError):
        return sqlstate(error) == READ_ONLY
    if not isinstance(error, OperationalError | InterfaceError):
        return False
    state = sqlstate(error)
    return state != IDLE_IN_TRANSACTION and state[:2] not in CAUSED_BY_DATA


def fingerprint() -> str:
    """Eight digits that distinguish this installation from others on the same machine.

    Ids of workers begin at 1 in each of them.
    """
    place = connection.settings_dict
    named = [connection.vendor, *(str(place.get(key) or "") for key in ("HOST", "PORT", "NAME"))]
    return hashlib.sha256("\n".join(named).encode()).hexdigest()[:8]


def takes_writes() -> bool:
    """Return True if this session may write: a standby and a read-only database answer, but accept
    no writes. Raises the database's errors if it does not answer."""
    with connection.cursor() as cursor:
        if connection.vendor != "postgresql":
            cursor.execute("SELECT 1")
            return True
        cursor.execute("SHOW transaction_read_only")
        return bool(cursor.fetchone() == ("off",))


def wait_until_reachable() -> None:
    """Wait until the database answers and accepts writes. Logs the problem at each attempt, with
    pauses of 0.5, 1 ... 5 s.

    Does not wait for missing tables: that is another error.
    """
    pause_seconds = FIRST_PAUSE_SECONDS
    while problem := _problem():
        connection.close()
        log.warning(
            "database not reachable, trying again",
            host=connection.settings_dict.get("HOST") or "this machine",
            database=str(connection.settings_dict["NAME"]),
            error=problem,
            again_in_seconds=pause_seconds,
        )
        time.sleep(pause_seconds)
        pause_seconds = min(2 * pause_seconds, LONGEST_PAUSE_SECONDS)


def _problem() -> str:
    try:
        return "" if takes_writes() else "it is read-only"
    except (OperationalError, InterfaceError) as error:
        return " ".join(str(error).split())[:200]


def hold_briefly() -> None:
    """Let the server end the present transaction soon after its client falls silent.

    For those that lock open executions: whoever vanishes with such locks delays ends. Most sessions
    have 10 s, as an executor may compute for seconds in a transaction.
    """
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute(f"SET LOCAL idle_in_transaction_session_timeout = {BRIEF_MS}")


class TookTooLong(MusterError):
    """The database did not answer in the time that it was given."""


@contextmanager
def answering_within(seconds: float) -> Iterator[None]:
    """Let PostgreSQL give up a statement that takes longer. Raises TookTooLong.

    For reads, outside of a transaction. SQLite has no such limit, and a transaction of it would be
    that of a writer.
    """
    if connection.vendor != "postgresql":
        yield
        return
    try:
        with transaction.atomic():
            with connection.cursor() as cursor:
                cursor.execute(f"SET LOCAL statement_timeout = {max(1, int(seconds * 1000))}")
            yield
    except OperationalError as error:
        if sqlstate(error) != QUERY_CANCELED:
            raise
        raise TookTooLong from None


def leave_read_only_sessions(connection: Any, **_: Any) -> None:
    """Close a session that turns out to be read-only after its work is done.

    Otherwise it would stay read-only while it is open, although the database accepts writes again.
    """
    if connection.vendor == "postgresql" and _notice_read_only not in connection.execute_wrappers:
        connection.execute_wrappers.append(_notice_read_only)


def leave_broken_sessions(connection: Any, **_: Any) -> None:
    """Let Django close a connection to SQLite that fails for good, after its next error: Django
    calls each of them usable, and would keep it until it is old."""
    if connection.vendor == "sqlite":
        connection.is_usable = partial(_answers, connection)


class InUtc:
    """Makes the driver's loader of times. Django asks a loader for its time zone."""

    timezone = UTC
    format = Format.TEXT

    def __new__(cls, oid: int, context: AdaptContext | None = None) -> Any:
        return adapters.get_loader(oid, cls.format)(oid, context)  # type: ignore[misc]


def load_times_natively(connection: Any, **_: Any) -> None:
    """Have the driver read times in UTC itself: Django's own loader, which knows all time zones, is
    written in Python, and takes 6 us for each."""
    if connection.vendor == "postgresql" and connection.timezone is UTC:
        connection.connection.adapters.register_loader("timestamptz", InUtc)


def _answers(connection: Any) -> bool:
    try:
        connection.connection.execute("SELECT 1")
    except sqlite3.Error:
        return False
    return True


def _notice_read_only(
    execute: Callable[..., Any], sql: str, parameters: Any, many: bool, context: dict[str, Any]
) -> Any:
    with noticing_read_only(context["connection"]):
        return execute(sql, parameters, many, context)


@contextmanager
def noticing_read_only(connection: Any) -> Iterator[None]:
    """For statements that do not go through Django's cursors."""
    try:
        yield
    except InternalError as error:
        if sqlstate(error) == READ_ONLY:
            connection.close_at = 0.0  # obsolete: Django's next check closes it
        raise


def carry_out_each(parts: Mapping[str, Callable[[], T]]) -> dict[str, T]:
    """Call all of these, even if some fail; returns their results by name.

    Each error is logged with its name. After all calls, the first error is raised again.
    """
    returned: dict[str, T] = {}
    errors: list[Exception] = []
    for name, part in parts.items():
        try:
            returned[name] = part()
        except Exception as error:
            # any error: the others do not depend on this part, and the promise depends on them
            log.error(
                "a part failed, the others go on",
                part=name,
                error=repr(error),
                # the first is raised, with its traceback; an outage needs none
                exc_info=bool(errors) and not is_outage(error),
            )
            errors.append(error)
            close_old_connections()
    if errors:
        raise errors[0]
    return returned
