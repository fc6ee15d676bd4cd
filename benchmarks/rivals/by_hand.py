"""The bound of an orchestrator on Celery: the least that keeps track of each execution.

Raw Celery, and what many would write around it: a row and its history. Acceptance commits both
before it sends the message; the task commits its claim, which a second copy of the message does not
get, runs, and commits its end. Each is one statement, written by hand for psycopg. Nothing checks
parameters, no monitor looks for what a dead worker has left, and no retry policy is asked.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from typing import Any
from uuid import UUID

import amqp
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

PLACE = """
    WITH moved AS (
        UPDATE execution SET status = 'placed', updated_at = now()
        WHERE id = ANY(%s::uuid[]) AND status = 'scheduled' RETURNING id
    )
    INSERT INTO event (execution_id, event) SELECT id, 'schedule' FROM moved
"""
BATCH = 250

_local = threading.local()


@app.task
def run(id: str, stamp_to: str | None = None) -> None:
    """Claim, run and end one execution."""
    if move(id, "scheduled", "running", "claim"):
        if stamp_to is not None:
            stamps.send(stamp_to)
        move(id, "running", "completed", "complete")


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


def schedule_cost_ms(*, workers: int, count: int) -> float:
    """Milliseconds for each execution that it takes to place `count` on so many workers, in
    Muster's batches: one statement, and one message for each worker, which lists what is its own;
    the broker confirms all of them. The workers are not looked at."""
    begin()
    ids = list(map(str, accept(count, "noop", {}, "benchmark")))
    queues = [f"by-hand-{number}" for number in range(workers)]
    with app.connection_for_write() as link:
        channel: Any = link.channel()
        for queue in queues:
            channel.queue_declare(queue, durable=True, auto_delete=False)
        confirmed = _count_confirms(channel)
        started = time.perf_counter()
        sent = 0
        for first in range(0, count, BATCH):
            batch = ids[first : first + BATCH]
            connection().execute(PLACE, [batch])
            for number in range(min(workers, len(batch))):
                queue = queues[(first + number) % workers]
                listed = json.dumps({"ids": batch[number::workers]})
                channel.basic_publish(amqp.Message(listed, delivery_mode=2), "", queue)
                sent += 1
            while confirmed() < sent:
                link.drain_events(timeout=stamps.PATIENCE_SECONDS)
        elapsed = time.perf_counter() - started
        if sum(channel.queue_delete(queue) for queue in queues) != sent:
            raise BenchmarkError("not all messages are in their queues")
    return elapsed * 1000 / count


def _count_confirms(channel: Any) -> Callable[[], int]:
    """Have the broker confirm what is published here from now on; returns what counts that."""
    confirmed: set[int] = set()

    def on_ack(tag: int, multiple: bool) -> None:
        confirmed.update(range(1, tag + 1) if multiple else [tag])

    channel.confirm_select()
    channel.events["basic_ack"].add(on_ack)
    return lambda: len(confirmed)


def connection() -> psycopg.Connection[Any]:
    """This thread's own; each statement is a transaction."""
    if not hasattr(_local, "connection"):
        _local.connection = psycopg.connect(os.environ["DATABASE_URL"], autocommit=True)
    found: psycopg.Connection[Any] = _local.connection
    return found


def move(id: str, seen: str, status: str, event: str) -> bool:
    moved = connection().execute(MOVE, [status, id, seen, event]).fetchone()
    return moved is not None
