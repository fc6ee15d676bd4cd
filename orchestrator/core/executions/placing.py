"""Accept a single execution and, on an idle PostgreSQL installation, place it in the same
statement.

The way through the executor costs two commits and a message more. It is the better one under load,
where the executor places whole batches; on an idle installation nearly all of that time is waiting.

The statement itself reads what waits, what each worker holds and which workers may take the
execution: it needs no view of the fleet, so that any number of processes may place, and whatever is
in doubt is left to the executor. Two that place at the same moment may give one worker more than
its slots; then the second waits in its queue, as it does behind the executor's window.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from time import monotonic
from typing import Any

from django.db import connection

from orchestrator.core import isolation as levels
from orchestrator.core import relay
from orchestrator.core.executions.dispatching import FULL, start_by
from orchestrator.core.fleet.needs import RESERVED, Need
from orchestrator.core.models import Execution, ExecutionEvent, Worker
from orchestrator.core.models.execution_sets import BACKLOG, SUSPECT_FROM
from orchestrator.core.models.fleet import fresh_between
from orchestrator.core.queue_terms import DEFAULT, QueueTerms
from orchestrator.core.statements import Statement, column_parameters, column_values
from orchestrator.core.states import EXECUTIONS, Lane

ACTOR = "acceptance"

MOST_PER_SECOND = 50
"""A process that accepts more than this leaves them to the executor, whose batches then cost
less."""

MOST_OPEN = 200
"""With this many open executions an installation is not idle. It also bounds the cost of the
statement."""


class _Pace:
    """About how many executions this process accepts a second: one counts less the longer ago it
    was."""

    def __init__(self) -> None:
        self._rate, self._at = 0.0, monotonic()

    def count_one(self) -> float:
        now = monotonic()
        self._rate = self._rate * math.exp(self._at - now) + 1
        self._at = now
        return self._rate


_pace = _Pace()


def is_idle() -> bool:
    """Count one more acceptance; returns True if it may be left to `insert`."""
    return (
        connection.vendor == "postgresql"
        and _pace.count_one() <= MOST_PER_SECOND
        and relay.is_sending()
    )


def insert(row: Execution, queues: Mapping[str, QueueTerms], *, now: datetime) -> bool:
    """Insert an execution: scheduled on a worker with a free slot, or as requested.

    It is placed only if nothing of the backlog is due or waits for room, and no suspect is open
    (see `fleet.quarantine`); the default queue does not look at the backlogs of the others. Left to
    the executor is one that is pinned, or whose queue is paused or has a limit, as is a worker that
    gives its queue a limited number of slots. The caller asks `admission` before.

    Returns False if its idempotency key is taken: then nothing was written. The caller sends the
    message.
    """
    need = Need.of_execution(row)
    oldest, newest = fresh_between(now)
    values: dict[str, Any] = {
        "may_be_placed": row.pinned_worker_id is None and _is_open(row, queues),
        "is_default": row.queue is None,
        "subscription": json.dumps({row.queue or DEFAULT: None}),
        "now": now,
        "start_by": start_by(row, now),
        "actor": ACTOR,
        "full": FULL,
        "backlog": list(BACKLOG),
        "oldest": oldest,
        "newest": newest,
        "runtime": json.dumps([need.runtime]),
        "labels": json.dumps(dict(need.labels)),
        "may_be_reserved": RESERVED in dict(need.labels),
        "isolations": [level for level in levels.LEVELS if levels.is_enough(level, need.isolation)],
        "code": list(need.code),
        "paused": row.lane_key,
    }
    written = _statement().execute(values | column_values(row))
    if not written:
        return False
    row._state.adding, row._state.db = False, connection.alias
    ((row.worker_id,),) = written
    if row.worker_id is not None:
        row.status, row.attempt = EXECUTIONS.rule("schedule").target, row.attempt + 1
        row.start_by, row.scheduled_at = values["start_by"], now
    return True


def _is_open(row: Execution, queues: Mapping[str, QueueTerms]) -> bool:
    if row.queue is None:
        return True
    terms = queues[row.queue]
    return not terms.is_paused and terms.max_running is None and row.lane != Lane.RETRY


@cache
def _statement() -> Statement:
    """Build the statement from five parts:

    1. `opened`: the first open executions; in this order the partial index serves them.
    2. `place`: the least loaded worker that may take the execution, if nothing waits.
    3. `chosen`: that worker, or NULL.
    4. `accepted`: the new row.
    5. `history`: its transition, if it was placed.
    """
    rule = EXECUTIONS.rule("schedule")
    fields = column_parameters(Execution)
    placed = {
        "status": f"'{rule.target}'",
        "attempt": f"{fields['attempt']} + 1",
        "worker_id": "chosen.id",
        "start_by": "%(start_by)s",
        "scheduled_at": "%(now)s",
    }
    values = ", ".join(
        f"CASE WHEN chosen.id IS NULL THEN {new} ELSE {placed[column]} END"
        if column in placed
        else new
        for column, new in fields.items()
    )
    execution = Execution._meta.db_table
    return Statement(f"""
        WITH opened AS MATERIALIZED (
            SELECT queue, status, worker_id, wait_reason, next_retry_at, lost_workers
            FROM {execution} WHERE ended_at IS NULL
            ORDER BY queue, priority DESC, id LIMIT {MOST_OPEN}
        ),
        place AS (
            SELECT worker.id
            FROM {Worker._meta.db_table} AS worker LEFT JOIN (
                SELECT worker_id, count(*) AS held FROM opened
                WHERE status <> ALL(%(backlog)s) GROUP BY worker_id
            ) AS load ON load.worker_id = worker.id
            WHERE %(may_be_placed)s
              AND worker.status = 'active' AND NOT worker.cordoned
              AND worker.heartbeat_at BETWEEN %(oldest)s AND %(newest)s
              AND worker.runtimes @> %(runtime)s AND worker.labels @> %(labels)s
              AND (%(may_be_reserved)s OR NOT worker.labels ? '{RESERVED}')
              AND (worker.queues @> %(subscription)s OR %(is_default)s AND worker.queues = '{{}}')
              AND worker.isolation = ANY(%(isolations)s)
              AND NOT worker.missing_code ?| %(code)s::text[]
              AND coalesce((worker.queue_pauses ->> %(paused)s)::timestamptz <= %(now)s, TRUE)
              AND coalesce(load.held, 0) < worker.capacity
              AND (SELECT count(*) FROM opened) < {MOST_OPEN}
              AND NOT EXISTS (
                  SELECT FROM opened
                  WHERE lost_workers >= {SUSPECT_FROM}
                     OR (queue IS NULL OR NOT %(is_default)s) AND status = ANY(%(backlog)s)
                        AND (next_retry_at IS NULL OR next_retry_at <= %(now)s
                             OR wait_reason = %(full)s)
              )
            ORDER BY coalesce(load.held, 0)::float / worker.capacity, random()
            LIMIT 1
        ),
        chosen AS (SELECT (SELECT id FROM place) AS id),
        accepted AS (
            INSERT INTO {execution} ({", ".join(fields)})
            SELECT {values} FROM chosen
            ON CONFLICT DO NOTHING
            RETURNING id, worker_id
        ),
        history AS (
            INSERT INTO {ExecutionEvent._meta.db_table}
                (execution_id, event, from_status, to_status, attempt, actor, reason, at)
            SELECT id, '{rule.event}', '{EXECUTIONS.initial}', '{rule.target}',
                {placed["attempt"]}, %(actor)s, '', %(now)s
            FROM accepted WHERE worker_id IS NOT NULL
        )
        SELECT worker_id FROM accepted
    """)  # noqa: S608 - every interpolated name is a column of our own model
