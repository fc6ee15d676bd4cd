"""Write events: with the change that they tell of, or soon after a request.

`record` writes at once, in the caller's transaction. `record_soon` hands over to a thread in the
background that writes many in one statement: for what happens thousands of times a minute, and
leaves a row of its own that names its actor anyway.
"""

from __future__ import annotations

import atexit
import os
import queue
import threading
import time
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import structlog
from django.db import Error as DatabaseError
from django.db import close_old_connections, connection, connections

from orchestrator.access.audit.models import AuditEvent
from orchestrator.core import clock

log = structlog.get_logger(__name__)

Decision = AuditEvent.Decision

MOST_WAITING = 10_000
"""Beyond this many, events are written by the requests themselves, which then wait for it."""

BATCH_SIZE = 500
PAUSE_SECONDS = 0.05
PAUSE_AFTER_ERROR_SECONDS = 1.0
FLUSH_SECONDS = 5.0


@dataclass(frozen=True)
class Actor:
    """Whoever does something."""

    kind: str
    """Such as `user`, `token`, `command`, `stranger`."""
    name: str
    id: str = ""
    token_prefix: str = ""


SYSTEM = Actor("system", "muster")


@dataclass(frozen=True)
class Origin:
    """The origin of a request."""

    request_id: str = ""
    address: str = ""


NOWHERE = Origin()
origin: ContextVar[Origin] = ContextVar("audit_origin", default=NOWHERE)
"""That of the request which this thread is working on."""


is_told: ContextVar[bool] = ContextVar("audit_is_told", default=False)
"""True after an event was written in the request, or the command, that is under way."""


def record(
    permission: str,
    *,
    actor: Actor,
    object_kind: str = "",
    object_id: object = "",
    decision: str = Decision.ALLOWED,
    reason: str = "",
    now: datetime | None = None,
) -> AuditEvent:
    """Write an event in the caller's transaction: it is undone with the change that it tells of."""
    row = _row(permission, actor, object_kind, object_id, decision, reason, now)
    event = AuditEvent(**dict(zip(COLUMNS, _fitted(row), strict=True)))
    event.save(force_insert=True)
    is_told.set(True)
    return event


def record_soon(
    permission: str,
    *,
    actor: Actor,
    object_kind: str = "",
    object_id: object = "",
    decision: str = Decision.ALLOWED,
    reason: str = "",
    now: datetime | None = None,
) -> None:
    """Write an event within a moment, after the commit. A process that is killed in that moment
    loses it."""
    row = _row(permission, actor, object_kind, object_id, decision, reason, now)
    if not _writer().put(row):
        _insert([_fitted(row)])


def is_written_elsewhere() -> None:
    """Write no event of the request that is under way, unless it is refused to somebody who is
    known: a row of another kind tells of it."""
    is_told.set(True)


Row = tuple[Any, ...]
"""The values of an event, in the order of its columns."""


def _row(
    permission: str,
    actor: Actor,
    object_kind: str,
    object_id: object,
    decision: str,
    reason: str,
    now: datetime | None,
) -> Row:
    here = origin.get()
    return (
        now or clock.now(),
        *(actor.kind, actor.id, actor.name, actor.token_prefix),
        *(permission, object_kind, str(object_id), str(decision), reason),
        *(here.request_id, here.address),
    )


COLUMNS = [field.name for field in AuditEvent._meta.concrete_fields if not field.primary_key]
LONGEST = [getattr(AuditEvent._meta.get_field(name), "max_length", None) for name in COLUMNS]


def _fitted(row: Row) -> Row:
    """The values as their columns take them: strangers choose some of the texts."""
    return tuple(
        value if longest is None or (len(value) <= longest and value.isprintable())
        else _cleaned(value, longest)
        for value, longest in zip(row, LONGEST, strict=True)
    )  # fmt: skip


def _cleaned(text: str, longest: int) -> str:
    shown = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text[:longest])
    return shown.encode("utf-8", "backslashreplace").decode()[:longest]


def _insert(rows: Sequence[Row]) -> None:
    """Insert in one statement, written by hand: composing it took longer than running it."""
    values = ", ".join([f"({', '.join(['%s'] * len(COLUMNS))})"] * len(rows))
    table = connection.ops.quote_name(AuditEvent._meta.db_table)
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {table} ({', '.join(COLUMNS)}) VALUES {values}",  # noqa: S608 - our names
            [_adapted(value) for row in rows for value in row],
        )


def _adapted(value: Any) -> Any:
    if isinstance(value, datetime):
        return connection.ops.adapt_datetimefield_value(value)
    return value


# --- in the background ---------------------------------------------------------------------------


class _Writer:
    """A thread that writes what has gathered, in one statement."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.waiting: queue.Queue[Row] = queue.Queue(maxsize=MOST_WAITING)
        threading.Thread(target=self._run, name="muster-audit", daemon=True).start()

    def put(self, row: Row) -> bool:
        try:
            self.waiting.put_nowait(row)
        except queue.Full:
            return False
        return True

    def flush(self, within_seconds: float) -> bool:
        until = time.monotonic() + within_seconds
        while self.waiting.unfinished_tasks and time.monotonic() < until:
            time.sleep(0.005)
        return not self.waiting.unfinished_tasks

    def _run(self) -> None:
        while True:
            batch = [self.waiting.get()]
            time.sleep(PAUSE_SECONDS)
            while len(batch) < BATCH_SIZE and not self.waiting.empty():
                batch.append(self.waiting.get())
            self._write(batch)
            for _ in batch:
                self.waiting.task_done()

    def _write(self, batch: list[Row]) -> None:
        """Write until it is written: nothing is dropped while the database is away."""
        while True:
            try:
                _insert([_fitted(row) for row in batch])
                close_old_connections()
                return
            except DatabaseError as error:
                log.warning("audit not written, trying again", n=len(batch), error=repr(error))
                connections.close_all()
                time.sleep(PAUSE_AFTER_ERROR_SECONDS)


_the_writer: _Writer | None = None
_lock = threading.Lock()


def _writer() -> _Writer:
    global _the_writer
    with _lock:
        if _the_writer is None or _the_writer.pid != os.getpid():
            _the_writer = _Writer()
        return _the_writer


@atexit.register
def flush(within_seconds: float = FLUSH_SECONDS) -> bool:
    """Wait until all events are written; returns False when time ran out first."""
    if _the_writer is None or _the_writer.pid != os.getpid():
        return True
    return _the_writer.flush(within_seconds)
