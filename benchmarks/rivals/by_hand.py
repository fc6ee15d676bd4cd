"""The bound of an orchestrator on Celery: the least that keeps track of each execution.

Raw Celery, and what many would write around it: a row and its history. Acceptance commits both
before it sends the message; the task commits its claim, which a second copy of the message does not
get, runs, and commits its end. Each is one statement, written by hand for psycopg. Nothing checks
parameters, no monitor looks for what a dead worker has left, and no retry policy is asked.
"""

from __future__ import annotations

import os
import threading
import time
from typing import Any
from uuid import UUID

import psycopg
import uuid_utils.compat as uuid_utils
from psycopg.types.json import Jsonb

from benchmarks import stamps
from benchmarks.remote import BenchmarkError
from benchmarks.rivals import raw_celery
from benchmarks.rivals.raw_celery import app

ACCEPT = """
    WITH accepted AS (
        INSERT INTO execution (id, action, parameters, status, requested_by)
        SELECT unnest(%s::uuid[]), %s, %s, 'scheduled', %s RETURNING id
    )
    INSERT INTO event (execution_id, event) SELECT id, 'schedule' FROM accepted
"""
MOVE = """
    WITH moved AS (
        UPDATE execution SET status = %s, updated_at = now()
        WHERE id = %s AND status = %s RETURNING id
    )
    INSERT INTO event (execution_id, event) SELECT id, %s FROM moved RETURNING execution_id
"""

_local = threading.local()


@app.task
def run(id: str, stamp_to: str | None = None) -> None:
    """Claim, run and end one execution."""
    if _move(id, "scheduled", "running", "claim"):
        if stamp_to is not None:
            stamps.send(stamp_to)
        _move(id, "running", "completed", "complete")


def prepare() -> None:
    """Make the tables."""
    raw_celery.prepare()
    connection().execute(
        """
        CREATE TABLE execution (
            id uuid PRIMARY KEY, action text, parameters jsonb, status text, requested_by text,
            created_at timestamptz DEFAULT now(), updated_at timestamptz DEFAULT now()
        );
        CREATE INDEX ON execution (id) WHERE status <> 'completed';
        CREATE TABLE event (
            id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            execution_id uuid REFERENCES execution, event text, at timestamptz DEFAULT now()
        );
        CREATE INDEX ON event (execution_id);
        """
    )


def begin() -> None:
    connection().execute("TRUNCATE execution, event")


def accept(count: int, action: str, parameters: dict[str, Any], by: str) -> list[UUID]:
    ids = [uuid_utils.uuid7() for _ in range(count)]
    connection().execute(ACCEPT, [ids, action, Jsonb(parameters), by])
    return ids


def submit(*, count: int, bulk: bool) -> None:
    """In bulk a thousand rows at once; Celery has no bulk request."""
    at_once = 1_000 if bulk else 1
    with app.producer_or_acquire() as producer:
        for first in range(0, count, at_once):
            for id in accept(min(at_once, count - first), "noop", {}, "benchmark"):
                run.apply_async((str(id),), producer=producer)


def is_finished(*, count: int) -> bool:
    left = "SELECT 1 FROM execution WHERE status <> 'completed' LIMIT 1"
    return connection().execute(left).fetchone() is None


def starts(*, count: int) -> list[float]:
    """As `raw_celery.starts`."""
    with stamps.Receiver() as receiver:

        def one() -> int:
            (id,) = accept(1, "stamp", {"address": receiver.address}, "benchmark")
            run.delay(str(id), receiver.address)
            return receiver.receive()

        return stamps.timed(one, count)


def ends(*, count: int) -> list[float]:
    """As `muster_side.ends`."""
    link = connection()
    link.execute(
        """
        CREATE OR REPLACE FUNCTION bench_ended() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN PERFORM pg_notify('bench_ended', ''); RETURN NULL; END $$;
        CREATE TRIGGER bench_ended AFTER UPDATE OF status ON execution
        FOR EACH ROW WHEN (NEW.status = 'completed') EXECUTE FUNCTION bench_ended();
        LISTEN bench_ended
        """
    )

    def one() -> int:
        (id,) = accept(1, "noop", {}, "benchmark")
        run.delay(str(id))
        for _ in link.notifies(timeout=stamps.PATIENCE_SECONDS, stop_after=1):
            return time.monotonic_ns()
        raise BenchmarkError("no execution ended")

    try:
        return stamps.timed(one, count)
    finally:
        link.execute("UNLISTEN bench_ended; DROP TRIGGER bench_ended ON execution")


def connection() -> psycopg.Connection[Any]:
    """This thread's own; each statement is a transaction."""
    if not hasattr(_local, "connection"):
        _local.connection = psycopg.connect(os.environ["DATABASE_URL"], autocommit=True)
    found: psycopg.Connection[Any] = _local.connection
    return found


def _move(id: str, seen: str, status: str, event: str) -> bool:
    moved = connection().execute(MOVE, [status, id, seen, event]).fetchone()
    return moved is not None
