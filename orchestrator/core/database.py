"""The database as a place: what it is called here, and waiting for it to come up."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import structlog
from django.db import close_old_connections, connection
from django.db.utils import InterfaceError, InternalError, OperationalError

T = TypeVar("T")

log = structlog.get_logger(__name__)

FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 5.0

LOCK_NOT_AVAILABLE = "55P03"
READ_ONLY = "25006"
IDLE_IN_TRANSACTION = "25P03"


def sqlstate(error: Exception) -> str:
    """What PostgreSQL calls this error, five letters and digits; empty if it named none.

    https://www.postgresql.org/docs/current/errcodes-appendix.html
    """
    return getattr(error.__cause__, "sqlstate", None) or ""


def fingerprint() -> str:
    """Eight digits that tell this installation from others on the same machine.

    Ids of workers begin at 1 in each of them.
    """
    place = connection.settings_dict
    named = [connection.vendor, *(str(place.get(key) or "") for key in ("HOST", "PORT", "NAME"))]
    return hashlib.sha256("\n".join(named).encode()).hexdigest()[:8]


def takes_writes() -> bool:
    """Whether this session may write: a standby, and a database that was made read-only, answer and
    take nothing. Raises what a database that does not answer raises."""
    with connection.cursor() as cursor:
        if connection.vendor != "postgresql":
            cursor.execute("SELECT 1")
            return True
        cursor.execute("SHOW transaction_read_only")
        return bool(cursor.fetchone() == ("off",))


def wait_until_reachable() -> None:
    """Return once the database answers and takes writes; says what is wrong at each attempt: 0.5, 1
    ... 5 s apart.

    A database that answers and lacks our tables is not waited for: that is an error of its own.
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


def leave_read_only_sessions(connection: Any, **_: Any) -> None:
    """Have a session that turned out to be read-only closed when its work is done.

    It would stay so for as long as it is open, although the database takes writes again.
    """
    if connection.vendor == "postgresql" and _notice_read_only not in connection.execute_wrappers:
        connection.execute_wrappers.append(_notice_read_only)


def _notice_read_only(
    execute: Callable[..., Any], sql: str, parameters: Any, many: bool, context: dict[str, Any]
) -> Any:
    try:
        return execute(sql, parameters, many, context)
    except InternalError as error:
        if sqlstate(error) == READ_ONLY:
            context["connection"].close_at = 0.0  # obsolete: the next look closes it
        raise


def carry_out_each(parts: Mapping[str, Callable[[], T]]) -> dict[str, T]:
    """Call every one of these, whatever became of the others; returns what each returned, by name.

    What one raises is logged with its name. When all were called, the first error is raised again.
    """
    returned: dict[str, T] = {}
    errors: list[Exception] = []
    for name, part in parts.items():
        try:
            returned[name] = part()
        except Exception as error:
            # whatever it is: the others have nothing to do with it, and the promise rests on them
            log.error(
                "a part failed, the others go on",
                part=name,
                error=repr(error),
                exc_info=bool(errors),  # the first is raised, with its traceback
            )
            errors.append(error)
            close_old_connections()
    if errors:
        raise errors[0]
    return returned
