"""The executions that wait for the executor, as its looks read them: rows without contents, each
with its action.

A look follows nearly every end, so on PostgreSQL each of its reads is a statement that a process
composes once: composing the queries took a third of the executor's time. Other databases get those
queries, and a test compares both.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any
from uuid import UUID

from django.db import DEFAULT_DB_ALIAS, connection
from django.db.models import Case, Q, TextField, Value, When
from django.db.models.functions import Cast, Coalesce, Concat

from orchestrator.core.models.catalog import Action
from orchestrator.core.models.execution_sets import (
    BACKLOG,
    BY_LIMIT,
    CONTENTS,
    LONGEST_PAUSE,
    SUSPECT_FROM,
)
from orchestrator.core.models.executions import Execution, ExecutionQuerySet, add_actions
from orchestrator.core.statements import Rows, Statement

ASKED = ("queue", "lane", "action_id", "release_id", "pinned_worker_id", "worker_selector")
"""The columns that decide which workers may take an execution. Suspects are placed apart."""


@dataclass(frozen=True)
class Choice:
    """The choice of what a look at the default queue wants to see."""

    runtimes: Collection[str]
    """Those that have room now."""
    known_runtimes: Collection[str]
    """Those that somebody runs or holds: what has another one cannot be run."""
    paused_actions: Collection[str] = ()
    """Left out."""
    without: UUID | None = None
    """Left out, too."""
    busy: Collection[UUID] = ()
    """Whatever asks for the same as one of these is left out: it cannot start now."""


def named(execution_ids: Sequence[UUID], *, now: datetime) -> list[Execution]:
    """Those of these executions that wait, the most urgent of each queue first."""
    if not _are_statements():
        return _waiting(now).filter(pk__in=execution_ids).with_actions()
    return _read(_named().execute({"ids": list(execution_ids)} | _times(now)))


def first_of_default(choice: Choice, *, limit: int, now: datetime) -> list[Execution]:
    """The most urgent ones of the default queue, locked until the transaction ends: those of
    runtimes with room, those that are pinned, and those of runtimes that are unknown."""
    if not _are_statements():
        may_start = Q(action__runtime__in=list(choice.runtimes)) | Q(pinned_worker__isnull=False)
        others = ~Q(action__runtime__in=list(choice.known_runtimes))
        rows = _waiting(now).in_queue(None).filter(may_start | others)
        rows = rows.exclude(action_ref__in=list(choice.paused_actions))
        if choice.without is not None:
            rows = rows.exclude(pk=choice.without)
        return _passing(rows, choice.busy).locked_for_batch(limit).with_actions()
    values = {
        "runtimes": list(choice.runtimes),
        "known_runtimes": list(choice.known_runtimes),
        "paused": list(choice.paused_actions),
        "without": choice.without,
        "limit": limit,
        "busy": list(choice.busy),
    }
    statement = _first_of_default(passes=bool(choice.busy))
    return _read(statement.execute(values | _times(now)))


def queues_with_work(names: Sequence[str], *, now: datetime) -> list[str]:
    """Those of these queues that have work that may start now, in this order."""
    if not names:
        return []
    if not _are_statements():
        backlog = Execution.objects.backlog(now)
        return [name for name in names if backlog.in_queue(name).exists()]
    rows = _queues_with_work().execute({"names": list(names)} | _times(now))
    return [name for (name,) in rows]


def first_of_queues(
    wanted: Mapping[str, int], *, now: datetime, busy: Collection[UUID] = ()
) -> list[Execution]:
    """The most urgent executions of each queue, at most as many as wanted, locked until the
    transaction ends: the first of each queue, then the second of each, and so on. `busy` as in
    `Choice`."""
    if not wanted:
        return []
    if not _are_statements():
        rows = _passing(_waiting(now), busy)
        first = [rows.in_queue(name)[:number].with_actions() for name, number in wanted.items()]
        return _in_turns(first)
    values = {"names": list(wanted), "numbers": list(wanted.values()), "busy": list(busy)}
    found: dict[str, list[Execution]] = {name: [] for name in wanted}
    statement = _first_of_queues(passes=bool(busy))
    for row in _read(statement.execute(values | _times(now))):
        assert row.queue is not None
        found[row.queue].append(row)
    return _in_turns(list(found.values()))


def _are_statements() -> bool:
    return connection.vendor == "postgresql"


def _waiting(now: datetime) -> ExecutionQuerySet:
    return Execution.objects.backlog(now).without_contents()


def _passing(rows: ExecutionQuerySet, busy: Collection[UUID]) -> ExecutionQuerySet:
    """Those that ask for something else than each of these."""
    if not busy:
        return rows
    others = Execution.objects.filter(pk__in=list(busy)).order_by().annotate(asked=_asked())
    return rows.annotate(asked=_asked()).exclude(asked__in=others.values("asked"))


def _asked() -> Any:
    """The text of all that an execution asks for: two with the same may have the same workers."""
    parts: list[Any] = [Value("|")] * (2 * len(ASKED) - 1)
    parts[::2] = [_text(name) for name in ASKED]
    is_suspect = Case(When(lost_workers__gte=SUSPECT_FROM, then=Value("|1")), default=Value("|"))
    return Concat(*parts, is_suspect, output_field=TextField())


def _text(name: str) -> Any:
    return Coalesce(Cast(name, TextField()), Value(""), output_field=TextField())


def _in_turns(backlogs: Sequence[Sequence[Execution]]) -> list[Execution]:
    longest = max(map(len, backlogs), default=0)
    return [
        backlog[place] for place in range(longest) for backlog in backlogs if place < len(backlog)
    ]


# --- the statements ------------------------------------------------------------------------------

EXECUTIONS, ACTIONS = Execution._meta.db_table, Action._meta.db_table

# the conditions of `ExecutionQuerySet.backlog`
WAITS = """
    execution.ended_at IS NULL
    AND execution.status = ANY(%(backlog)s) AND execution.deadline_at > %(now)s
    AND (execution.next_retry_at IS NULL OR execution.next_retry_at <= %(now)s
         OR execution.next_retry_at > %(latest)s AND execution.wait_reason <> ''
            AND NOT starts_with(execution.wait_reason, %(by_limit)s))
"""

# with the queue first it is the order of the index, also for the rows of a single queue
IN_ORDER = "ORDER BY execution.queue, execution.priority DESC, execution.id"


def _asked_in_sql(table: str) -> str:
    columns = ", '|', ".join(f"{table}.{column}" for column in ASKED)
    return f"concat({columns}, '|', {table}.lost_workers >= {SUSPECT_FROM})"


# it is read once, and looked up for each row: the rows stay in the order of their index
PASSES = f"""
    AND {_asked_in_sql("execution")} NOT IN (
        SELECT {_asked_in_sql("other")} FROM {EXECUTIONS} AS other
        WHERE other.id = ANY(%(busy)s::uuid[])
    )
"""  # noqa: S608 - every interpolated name is our own


def _times(now: datetime) -> dict[str, Any]:
    latest, backlog = now + LONGEST_PAUSE, list(BACKLOG)
    return {"now": now, "latest": latest, "backlog": backlog, "by_limit": BY_LIMIT}


@cache
def _rows() -> Rows[Execution]:
    return Rows(Execution, without=CONTENTS)


def _columns() -> str:
    return ", ".join(f'execution."{name}"' for name in _rows().columns)


def _read(fetched: Iterable[tuple[Any, ...]]) -> list[Execution]:
    return add_actions(_rows().read(fetched, using=DEFAULT_DB_ALIAS))


@cache
def _named() -> Statement:
    return Statement(f"""
        SELECT {_columns()} FROM {EXECUTIONS} AS execution
        WHERE execution.id = ANY(%(ids)s::uuid[]) AND {WAITS} {IN_ORDER}
    """)  # noqa: S608 - every interpolated name is our own


@cache
def _first_of_default(*, passes: bool) -> Statement:
    # the action is read for each row: a join might read the whole backlog to sort it
    return Statement(f"""
        SELECT {_columns()} FROM {EXECUTIONS} AS execution
        WHERE execution.queue IS NULL AND {WAITS}
          AND (execution.pinned_worker_id IS NOT NULL OR (
              SELECT action.runtime = ANY(%(runtimes)s::text[])
                  OR action.runtime <> ALL(%(known_runtimes)s::text[])
              FROM {ACTIONS} AS action WHERE action.id = execution.action_id
          ))
          AND execution.action_ref <> ALL(%(paused)s::text[])
          AND execution.id IS DISTINCT FROM %(without)s::uuid
          {PASSES if passes else ""}
        {IN_ORDER} LIMIT %(limit)s::bigint FOR NO KEY UPDATE SKIP LOCKED
    """)  # noqa: S608 - every interpolated name is our own


@cache
def _queues_with_work() -> Statement:
    return Statement(f"""
        SELECT wanted.name
        FROM unnest(%(names)s::text[]) WITH ORDINALITY AS wanted (name, number)
        WHERE EXISTS (
            SELECT FROM {EXECUTIONS} AS execution
            WHERE execution.queue = wanted.name AND {WAITS}
        )
        ORDER BY wanted.number
    """)  # noqa: S608 - every interpolated name is our own


@cache
def _first_of_queues(*, passes: bool) -> Statement:
    return Statement(f"""
        SELECT first.*
        FROM unnest(%(names)s::text[], %(numbers)s::int[]) AS wanted (name, number)
        CROSS JOIN LATERAL (
            SELECT {_columns()} FROM {EXECUTIONS} AS execution
            WHERE execution.queue = wanted.name AND {WAITS} {PASSES if passes else ""}
            {IN_ORDER} LIMIT wanted.number FOR NO KEY UPDATE SKIP LOCKED
        ) AS first
    """)  # noqa: S608 - every interpolated name is our own
