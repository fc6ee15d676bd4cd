"""The statements that services send to a database, counted in the log of its server.

`pg_stat_database` is not exact enough: a backend reports to it at most once a second, and some time
after it is idle.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
from psycopg import sql

LINE = re.compile(rb"^\S+ \S+ \S+ \[(\d+)\] LOG:  (?:statement|execute [^:]*): (.*)$", re.MULTILINE)
BOUNDARIES = (b"BEGIN", b"COMMIT", b"ROLLBACK", b"SAVEPOINT", b"RELEASE")
PRESENCE = b'UPDATE "orchestrator_service"'
"""The statement by which every service says that it is there, console or not."""


class Log:
    """The log of a server that writes down each statement of one database, of connections that are
    made after `begin`."""

    def __init__(self, server_url: str, database_url: str, path: Path) -> None:
        self.server_url, self.path = server_url, path
        self.database = urlsplit(database_url).path.lstrip("/")
        self._offset = 0
        self._apart: set[int] = set()

    def begin(self) -> None:
        self._do(
            sql.SQL("ALTER DATABASE {} SET log_statement = 'all'").format(
                sql.Identifier(self.database)
            )
        )
        self.mark()

    def mark(self) -> None:
        """Count from here on."""
        self._offset = self.path.stat().st_size

    def counts(self, *, but: Collection[int] = ()) -> Counter[int]:
        """The statements since the mark by the process of their connection, without these ones and
        without those that renew the presence of services."""
        with self.path.open("rb") as log:
            log.seek(self._offset)
            text = log.read()
        self._apart |= renewers(text)
        return read(text, but={*but, *self._apart})

    def connections(self) -> set[int]:
        """The processes of all connections to the database."""
        with psycopg.connect(self.server_url, autocommit=True) as connection:
            rows = connection.execute(
                "SELECT pid FROM pg_stat_activity WHERE datname = %s", [self.database]
            )
            return {pid for (pid,) in rows}

    def within(self, seconds: float, *, but: Collection[int] = ()) -> Counter[int]:
        """The same, of so many seconds from now on."""
        self.mark()
        time.sleep(seconds)
        return self.counts(but=but)

    def _do(self, statement: sql.Composed) -> None:
        with psycopg.connect(self.server_url, autocommit=True) as connection:
            connection.execute(statement)


def read(log: bytes, *, but: Collection[int] = ()) -> Counter[int]:
    """The statements in this part of a log by process, without those of these processes. What only
    begins or ends a transaction is no statement."""
    return Counter(
        int(pid)
        for pid, statement in LINE.findall(log)
        if int(pid) not in but and not statement.startswith(BOUNDARIES)
    )


def renewers(log: bytes) -> set[int]:
    """The processes of connections that only renew the presence of a service."""
    return {int(pid) for pid, statement in LINE.findall(log) if statement.startswith(PRESENCE)}
