"""Reads what is left of a run: rows with plain SQL, traces, the process table, the queues."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import sqlite3
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import psutil
import psycopg
from psycopg.rows import dict_row

from tests import servers
from tests.chaos.facts import Event, FailedTask, Line, Record, Row, Sighting, StepRow, TaskRow
from tests.scenarios.installation import Installation

LOOK_EVERY_SECONDS = 2.0
UNREADABLE = (psycopg.Error, sqlite3.Error)
"""Of a database that is away."""
MARK = "MSTR_EXECUTION_ID"
ASKED_BEFORE_SECONDS = 30.0
"""Who asks the clock may be kept for so long, by a lock or a server, until it writes that down."""
LATE_COMMIT_SECONDS = 10.0
"""A row's `ended_at` is from before its commit: newly ended rows are looked for this far back."""

OPEN = "SELECT id FROM orchestrator_execution WHERE ended_at IS NULL"
OPEN_TASKS = (
    "SELECT id FROM workflows_task WHERE state NOT IN "
    "('complete', 'cancelled', 'resolved_manually')"
)
OPEN_EVENTS = "SELECT id FROM automation_event WHERE evaluated_at IS NULL"
OPEN_ANSWERS = "SELECT id FROM automation_enforcement WHERE ended_at IS NULL"
TASK_FAILED = re.compile(
    r"^(?P<at>\S+) .*Task (?P<task>muster\.\w+)\[\S+\] raised unexpected: (?P<error>.*)$",
    re.MULTILINE,
)
ACTIONS = "SELECT id, idempotent, retry_policy FROM orchestrator_action"

TRUE_TIMES = """
    CREATE FUNCTION seconds_up() RETURNS double precision LANGUAGE sql VOLATILE SECURITY DEFINER AS
        $$ SELECT split_part(pg_read_file('/proc/uptime'), ' ', 1)::double precision $$
"""
TRUE_TIME = "ALTER TABLE {} ADD COLUMN written_up double precision NOT NULL DEFAULT seconds_up()"
DATED = (
    "orchestrator_execution", "orchestrator_executionevent", "workflows_transitionrecord",
)  # fmt: skip


@dataclass(frozen=True)
class ClockStep:
    """From when on the database's clock was off by so much."""

    at: float
    offset_seconds: float


class Database:
    """The rows of an installation, past all of Muster's code."""

    def __init__(self, muster: Installation) -> None:
        self.url = muster.environment.get("DATABASE_URL", "")
        self.path = muster.directory / "muster.db"
        self.clock_steps: list[ClockStep] = []
        self._began_at = 0.0

    def select(self, statement: str) -> list[dict[str, Any]]:
        with self._connected() as connection:
            return [dict(row) for row in connection.execute(statement).fetchall()]

    def open_executions(self) -> int | None:
        """How many are not over; None if nothing can be read now."""
        try:
            return len(self.select(OPEN))
        except UNREADABLE:
            return None

    @contextlib.contextmanager
    def _connected(self) -> Iterator[Any]:
        if self.url:
            with psycopg.connect(self.url, row_factory=dict_row, connect_timeout=5) as connection:
                yield connection
        else:
            with contextlib.closing(sqlite3.connect(self.path, timeout=20)) as database:
                database.row_factory = sqlite3.Row
                yield database

    # ---- times ----

    def keep_true_times(self) -> None:
        """From now on each row says when it was written, by a clock that nobody sets: what the
        machine counts since it began. Needs a PostgreSQL of our own on this machine."""
        with self._connected() as connection:
            connection.execute(TRUE_TIMES)
            for table in DATED:
                connection.execute(TRUE_TIME.format(table))
        up_seconds = float(Path("/proc/uptime").read_text().split()[0])
        self._began_at = time.time() - up_seconds

    def note_clock_step(self, offset_seconds: float) -> None:
        """Now the database's clock was set to be off by this."""
        self.clock_steps.append(ClockStep(time.time(), offset_seconds))

    def offset_at(self, at: float) -> float:
        """How far the database's clock was off at a time."""
        steps = [step.offset_seconds for step in self.clock_steps if step.at <= at]
        return steps[-1] if steps else 0.0

    def _true_time(self, shown: float, *, written_at: float) -> float:
        """When the database's clock showed this to whoever wrote it down at that time.

        Who asked before the clock was set wrote afterwards: of what it has shown lately, it is the
        time that is nearest to that of the writing.
        """
        lately = {self.offset_at(written_at)}
        lately |= {self.offset_at(written_at - ASKED_BEFORE_SECONDS)}
        lately |= {
            step.offset_seconds
            for step in self.clock_steps
            if written_at - ASKED_BEFORE_SECONDS <= step.at <= written_at
        }
        return min((shown - offset for offset in lately), key=lambda at: abs(written_at - at))

    def last_before(self, shown: float, *, by: float | None = None) -> float:
        """The last time at which the database's clock did not show so much yet, as far as it was
        set by then.

        A deadline is a time of that clock: set back, it is before the deadline once more.
        """
        steps = [step for step in self.clock_steps if by is None or step.at <= by]
        begins = [float("-inf"), *(step.at for step in steps)]
        offsets = [0.0, *(step.offset_seconds for step in steps)]
        return max(
            min(end, shown - offset)
            for begin, end, offset in zip(begins, [*begins[1:], float("inf")], offsets, strict=True)
            if begin < shown - offset
        )

    def _written_at(self, row: Mapping[str, Any], told: str) -> float:
        """When a row was written; what its column tells where nobody sets the clock."""
        if "written_up" in row:
            return self._began_at + float(row["written_up"])
        return _seconds(row[told])

    # ---- executions ----

    def digests(self, where: str) -> dict[str, str]:
        """Of whole rows, by execution."""
        rows = self.select("SELECT * FROM orchestrator_execution " + where)  # noqa: S608
        return {_id(row["id"]): _digest(row) for row in rows}

    def rows(self, events: Sequence[Event]) -> list[Row]:
        actions = {row["id"]: row for row in self.select(ACTIONS)}
        names = self.worker_names()
        last_at = {event.execution: event.at for event in events}
        retries = Counter(event.execution for event in events if event.event == "retry")
        rows = self.select("SELECT * FROM orchestrator_execution ORDER BY id")
        return [
            replace(
                self._row(row, actions[row["action_id"]], names, last_at),
                lost_before=row["retry_count"] - retries[_id(row["id"])],
            )
            for row in rows
        ]

    def _row(
        self,
        row: dict[str, Any],
        action: dict[str, Any],
        names: dict[int, str],
        last_at: dict[str, float],
    ) -> Row:
        id, created_at = _id(row["id"]), self._written_at(row, "created_at")
        ended_at = None if row["ended_at"] is None else last_at.get(id, created_at)
        deadline_at = _seconds(row["deadline_at"])
        policy = self._json(row["retry_policy"]) or self._json(action["retry_policy"]) or {}
        parameters = self._json(row["parameters"])
        waits = [row["scheduled_timeout_seconds"], _of_ms(row["queue_ttl_ms"])]
        retry_on = policy.get("retry_on")
        return Row(
            execution=id,
            action=row["action_ref"],
            idempotent=bool(action["idempotent"]),
            status=row["status"],
            reason=row["reason"],
            attempt=row["attempt"],
            deadline_at=self.last_before(deadline_at, by=ended_at),
            ended_at=ended_at,
            digest=_digest(row),
            created_at=created_at,
            pinned=names.get(row["pinned_worker_id"]),
            own_ttl_seconds=min((wait for wait in waits if wait is not None), default=None),
            timeout_seconds=row["timeout_seconds"],
            seconds=parameters.get("seconds", 0.0),
            max_attempts=policy.get("max_attempts", 1),
            retry_on=None if retry_on is None else frozenset(retry_on),
            result=self._json(row["result"]),
            queue=row["queue"] or "default",
        )

    def events(self) -> list[Event]:
        rows = self.select("SELECT * FROM orchestrator_executionevent ORDER BY id")
        return [self._event(row, self._written_at(row, "at")) for row in rows]

    def _event(self, row: Mapping[str, Any], at: float) -> Event:
        return Event(
            execution=_id(row["execution_id"]),
            event=row["event"],
            from_status=row["from_status"],
            to_status=row["to_status"],
            attempt=row["attempt"],
            actor=row["actor"],
            reason=row["reason"],
            at=at,
            told_at=self._true_time(_seconds(row["at"]), written_at=at),
        )

    def worker_names(self) -> dict[int, str]:
        workers = self.select("SELECT id, name FROM orchestrator_worker")
        return {row["id"]: row["name"] for row in workers}

    def count_open(self) -> int:
        """Executions and tasks that are not over."""
        return sum(len(self.select(each)) for each in (OPEN, OPEN_TASKS, OPEN_EVENTS, OPEN_ANSWERS))

    # ---- tasks ----

    def tasks(self) -> list[TaskRow]:
        rows = self.select(
            "SELECT task.id, name, state, ended_at, created_at FROM workflows_task AS task "
            "JOIN workflows_tasktemplate AS template ON template.id = template_id "
            "ORDER BY task.id"
        )
        return [
            TaskRow(
                task=_id(row["id"]),
                template=row["name"],
                state=row["state"],
                ended_at=None if row["ended_at"] is None else _seconds(row["ended_at"]),
                created_at=_seconds(row["created_at"]),
            )
            for row in rows
        ]

    def steps(self) -> list[StepRow]:
        parents: dict[str, set[str]] = defaultdict(set)
        for edge in self.select("SELECT child_id, parent_id FROM workflows_stepdependency"):
            parents[_id(edge["child_id"])].add(_id(edge["parent_id"]))
        return [
            StepRow(
                step=_id(row["id"]),
                task=_id(row["task_id"]),
                name=row["name"],
                state=row["state"],
                attempts=row["attempts"],
                execution=None if row["execution_id"] is None else _id(row["execution_id"]),
                parents=frozenset(parents[_id(row["id"])]),
                result=self._json(row["result"]),
            )
            for row in self.select("SELECT * FROM workflows_step ORDER BY id")
        ]

    def records(self) -> list[Record]:
        return [
            Record(
                task=_id(row["task_id"]),
                step=None if row["step_id"] is None else _id(row["step_id"]),
                event=row["event"],
                from_state=row["from_state"],
                to_state=row["to_state"],
                at=self._written_at(row, "at"),
            )
            for row in self.select("SELECT * FROM workflows_transitionrecord ORDER BY id")
        ]

    def tries(self) -> list[tuple[str, str]]:
        rows = self.select("SELECT step_id, execution_id FROM workflows_stepexecution")
        return [(_id(row["step_id"]), _id(row["execution_id"])) for row in rows]

    def unanswered(self) -> dict[str, int]:
        """What automation has left undone, or done twice."""
        return {what: int(self.select(statement)[0]["n"]) for what, statement in UNANSWERED.items()}

    def _json(self, value: Any) -> Any:
        """SQLite keeps JSON as text."""
        return json.loads(value) if isinstance(value, str) and not self.url else value


UNANSWERED = {
    "events that no rule was asked about": (
        "SELECT count(*) AS n FROM automation_event WHERE evaluated_at IS NULL"
    ),
    "enforcements with neither an execution nor a reason": (
        "SELECT count(*) AS n FROM automation_enforcement WHERE ended_at IS NULL"
    ),
    "executed enforcements without their execution": (
        "SELECT count(*) AS n FROM automation_enforcement WHERE state = 'executed' AND NOT EXISTS "
        "(SELECT 1 FROM orchestrator_execution WHERE id = execution_id)"
    ),
    "executions of rules without their enforcement": (
        "SELECT count(*) AS n FROM orchestrator_execution AS execution "
        "WHERE idempotency_key LIKE 'muster:enforcement:%' AND NOT EXISTS "
        "(SELECT 1 FROM automation_enforcement WHERE execution_id = execution.id)"
    ),
}


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


def failed_tasks(directory: Path) -> list[FailedTask]:
    """What the logs of executors say in this directory, all lives of them."""
    return [
        FailedTask(
            at=datetime.fromisoformat(match["at"]).timestamp(),
            service=path.name.partition(".")[0],
            task=match["task"],
            error=match["error"],
        )
        for path in sorted(directory.glob("executor*.log"))
        for match in TASK_FAILED.finditer(path.read_text(errors="replace"))
    ]


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
        self.last_open: dict[str, float] = {}
        """When an execution was last seen to be open, whatever its end is dated."""
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
        where = f"WHERE ended_at > datetime('now', '-{LATE_COMMIT_SECONDS:.0f} seconds')"
        if self.database.url:
            where = f"WHERE ended_at > now() - interval '{LATE_COMMIT_SECONDS:.0f} s'"
        with contextlib.suppress(*UNREADABLE):
            at = time.time()
            for row in self.database.select(OPEN):
                self.last_open[_id(row["id"])] = at
            for execution, digest in self.database.digests(where).items():
                self.terminal_digests.setdefault(execution, digest)

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


def _digest(row: dict[str, Any]) -> str:
    return hashlib.sha256(repr(sorted(row.items())).encode()).hexdigest()


def _of_ms(value: float | None) -> float | None:
    return None if value is None else value / 1000


def _seconds(value: Any) -> float:
    if isinstance(value, str):
        value = datetime.fromisoformat(value).replace(tzinfo=UTC)
    seconds: float = value.timestamp()
    return seconds
