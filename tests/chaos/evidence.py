"""Reads what is left of a run: rows with plain SQL, traces, the process table, the queues."""

from __future__ import annotations

import contextlib
import hashlib
import json
import sqlite3
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import psutil
import psycopg
from psycopg.rows import dict_row

from tests import servers
from tests.chaos.checker import Event, Line, Row, Sighting
from tests.scenarios.installation import Installation

LOOK_EVERY_SECONDS = 2.0
MARK = "MSTR_EXECUTION_ID"
LATE_COMMIT_SECONDS = 10.0
"""A row's `ended_at` is from before its commit: newly ended rows are looked for this far back."""

OPEN = "SELECT id FROM orchestrator_execution WHERE ended_at IS NULL"


class Database:
    """The rows of an installation, past all of Muster's code."""

    def __init__(self, muster: Installation) -> None:
        self.url = muster.environment.get("DATABASE_URL", "")
        self.path = muster.directory / "muster.db"

    def select(self, statement: str) -> list[dict[str, Any]]:
        with self._connected() as connection:
            return [dict(row) for row in connection.execute(statement).fetchall()]

    @contextlib.contextmanager
    def _connected(self) -> Iterator[Any]:
        if self.url:
            with psycopg.connect(self.url, row_factory=dict_row, connect_timeout=5) as connection:
                yield connection
        else:
            with contextlib.closing(sqlite3.connect(self.path, timeout=20)) as database:
                database.row_factory = sqlite3.Row
                yield database

    def rows(self, where: str = "") -> list[Row]:
        actions = {
            row["id"]: bool(row["idempotent"])
            for row in self.select("SELECT id, idempotent FROM orchestrator_action")
        }
        return [
            Row(
                execution=_id(row["id"]),
                action=row["action_ref"],
                idempotent=actions[row["action_id"]],
                status=row["status"],
                reason=row["reason"],
                attempt=row["attempt"],
                deadline_at=_seconds(row["deadline_at"]),
                ended_at=None if row["ended_at"] is None else _seconds(row["ended_at"]),
                digest=hashlib.sha256(repr(sorted(row.items())).encode()).hexdigest(),
            )
            for row in self.select("SELECT * FROM orchestrator_execution " + where)  # noqa: S608
        ]

    def events(self) -> list[Event]:
        return [
            Event(
                execution=_id(row["execution_id"]),
                event=row["event"],
                from_status=row["from_status"],
                to_status=row["to_status"],
                attempt=row["attempt"],
                actor=row["actor"],
                reason=row["reason"],
                at=_seconds(row["at"]),
            )
            for row in self.select("SELECT * FROM orchestrator_executionevent ORDER BY id")
        ]

    def count_open(self) -> int:
        return len(self.select(OPEN))


def queues(muster: Installation) -> dict[str, int]:
    """Messages in each queue, ready or delivered and not acknowledged."""
    rabbit = muster.backend.rabbit
    if rabbit is not None:
        host = virtual_host(muster)
        listed = rabbit.control("list_queues", "-p", host, "name", "messages", "--no-table-headers")
        return {name: int(count) for name, count in map(str.split, listed.splitlines())}
    with contextlib.closing(sqlite3.connect(muster.directory / "broker.db", timeout=20)) as broker:
        return dict(
            broker.execute(
                "SELECT queue.name, count(message.id) FROM queue "
                "LEFT JOIN message ON message.queue_id = queue.id GROUP BY queue.name"
            ).fetchall()
        )


def virtual_host(muster: Installation) -> str:
    return muster.environment["BROKER_URL"].rpartition("/")[2]


class Trace:
    """The file to which actions write; read as it grows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines: list[Line] = []
        self._read = 0

    def read(self) -> list[Line]:
        if self.path.exists():
            with self.path.open("rb") as file:
                file.seek(self._read)
                for line in file:
                    if not line.endswith(b"\n"):
                        break  # still on its way
                    self._read += len(line)
                    self.lines.append(Line(**json.loads(line)))
        return self.lines


class Watch(threading.Thread):
    """Looks every two seconds which attempts are alive, and which rows have ended."""

    def __init__(self, database: Database, trace: Trace) -> None:
        super().__init__(name="watch", daemon=True)
        self.database, self.trace = database, trace
        self.sightings: list[Sighting] = []
        self.terminal_digests: dict[str, str] = {}
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.wait(LOOK_EVERY_SECONDS):
            self.look()

    def stop(self) -> None:
        self._over.set()
        self.join()
        self.look()

    def look(self) -> None:
        self.sightings += [*_marked_processes(), *self._pool_children()]
        since = datetime.fromtimestamp(time.time() - LATE_COMMIT_SECONDS, UTC)
        where = f"WHERE ended_at > '{since:%Y-%m-%d %H:%M:%S}'"
        if self.database.url:
            where += "::timestamp at time zone 'UTC'"
        with contextlib.suppress(psycopg.Error, sqlite3.Error):  # the database may be away
            for row in self.database.rows(where):
                self.terminal_digests.setdefault(row.execution, row.digest)

    def _pool_children(self) -> Iterator[Sighting]:
        """Python actions live in a pool child: it started one and said nothing since."""
        latest = {line.pid: line for line in self.trace.read()}
        for line in latest.values():
            if line.event == "start" and _is_alive_since(line.pid, line.at):
                yield Sighting(line.execution, line.attempt, line.pid, time.time())


def _marked_processes() -> Iterator[Sighting]:
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError, ValueError):
            marks = process.environ()
            if MARK in marks and servers.is_alive(process):
                attempt = int(marks.get("MSTR_ATTEMPT", 0))
                yield Sighting(marks[MARK], attempt, process.pid, time.time())


def _is_alive_since(pid: int, at: float) -> bool:
    try:
        process = psutil.Process(pid)
        return process.create_time() <= at + 1 and servers.is_alive(process)
    except psutil.Error:
        return False


def _id(value: Any) -> str:
    return str(value if isinstance(value, UUID) else UUID(value))


def _seconds(value: Any) -> float:
    if isinstance(value, str):
        value = datetime.fromisoformat(value).replace(tzinfo=UTC)
    seconds: float = value.timestamp()
    return seconds
