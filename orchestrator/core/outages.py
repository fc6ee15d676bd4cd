"""The log of a process while the database fails: few lines, without stacks.

Everything that a process does then fails, many times a second. One line says so, and why; another
one each minute that it lasts, and one when it is over.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from math import inf
from typing import Any

import structlog
from django.db import DatabaseError, InterfaceError
from django.db.utils import DEFAULT_DB_ALIAS

from orchestrator.core import database

log = structlog.get_logger(__name__)

REPEAT_SECONDS = 60.0
"""Between two lines of one outage. A failure after a longer silence is of another one."""
LEAST_SECONDS = 10.0
"""Between the first lines of two outages: a full disk lets sessions begin, and fails each of
them."""

BUSY = frozenset(
    {
        database.LOCK_NOT_AVAILABLE,
        database.SERIALIZATION_FAILURE,
        database.DEADLOCK_DETECTED,
        database.QUERY_CANCELED,
    }
)
"""The `sqlstate` of a database that works, and has one statement fail."""

OF_TASKS = "celery.app.trace"
FOREIGN = ("django_celery_beat.schedulers", "celery.beat", OF_TASKS)
"""Loggers of libraries that log each failure of the database with its stack."""


class Outage:
    """The present outage of the database, as this process meets it. From any thread."""

    def __init__(self) -> None:
        self.is_on = False
        self._failures = 0
        self._began_at = self._failed_at = self._logged_at = -inf
        self._is_logged = False
        self._lock = threading.Lock()

    def note(self, problem: str, error: Exception, **fields: Any) -> None:
        """Count a failure, and log it if it is the first or the last line is old."""
        now = time.monotonic()
        with self._lock:
            if not self.is_on or now - self._failed_at > REPEAT_SECONDS:
                self.is_on, self._is_logged = True, False
                self._began_at, self._failures = now, 0
            self._failures += 1
            self._failed_at = now
            pause_seconds = REPEAT_SECONDS if self._is_logged else LEAST_SECONDS
            is_due = now - self._logged_at >= pause_seconds
            if is_due:
                self._logged_at, self._is_logged = now, True
            failures = self._failures
        if is_due:
            log.warning(
                "database fails, trying again",
                error=brief(error),
                problem=problem,
                failures=failures,
                next_line_in_seconds=REPEAT_SECONDS,
                **fields,
            )

    def end(self) -> None:
        """Note that the database works."""
        with self._lock:
            was_logged = self.is_on and self._is_logged
            self.is_on = self._is_logged = False
            away_seconds, failures = time.monotonic() - self._began_at, self._failures
        if was_logged:
            log.info(
                "database answers again", away_seconds=round(away_seconds, 1), failures=failures
            )


outage = Outage()


def brief(error: Exception) -> str:
    """The text of an error of the database in one short line."""
    return " ".join(str(error).split())[:200] or type(error).__name__


class Log:
    """A logger of structlog whose `exception` leaves out the stack of an outage."""

    def __init__(self, name: str) -> None:
        self._log = structlog.get_logger(name)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def exception(self, problem: str, *, is_final: bool = False, **fields: Any) -> None:
        """Log the exception that is being handled, with its stack unless the database fails.

        An outage is one line for the whole process, however much fails. `is_final`: nothing tries
        this again, so it is a line of its own in any case.
        """
        error = sys.exc_info()[1]
        if not isinstance(error, Exception) or not database.is_outage(error):
            self._log.error(problem, exc_info=True, **fields)
            return
        is_busy = database.sqlstate(error) in BUSY
        if not is_busy:
            outage.note(problem, error, **({} if is_final else fields))
        if is_final or is_busy:
            self._log.warning(problem, error=brief(error), **fields)


def get_logger(name: str) -> Log:
    """Return a logger for loops that try again and again, and must not flood the log."""
    return Log(name)


def notice_end(connection: Any, **_: Any) -> None:
    """Notice at a new connection that an outage is over. A pooler connects, and a standby answers,
    so it is asked whether it takes writes."""
    if not outage.is_on or connection.alias != DEFAULT_DB_ALIAS:
        return
    try:
        if database.takes_writes():
            outage.end()
    except (DatabaseError, InterfaceError):
        pass  # whoever connects gets the same error, and reports it


class ForeignOutages(logging.Filter):
    """Replaces the lines of libraries about outages by ours. Those that name a task that failed
    stay, without their stacks, as does what fails in a database that works."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
        if not isinstance(error, Exception) or not database.is_outage(error):
            return True
        is_busy = database.sqlstate(error) in BUSY
        if not is_busy:
            outage.note(f"{record.name} failed", error)
        record.exc_info = record.exc_text = None
        return is_busy or record.name == OF_TASKS


def brake_foreign_lines() -> None:
    """Let the loggers of libraries report outages as we do."""
    for name in FOREIGN:
        logger = logging.getLogger(name)
        if not any(isinstance(each, ForeignOutages) for each in logger.filters):
            logger.addFilter(ForeignOutages())
