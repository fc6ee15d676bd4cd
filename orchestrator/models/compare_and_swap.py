"""How a transition is written: both databases' ways, side by side.

PostgreSQL takes a whole batch, with its history, in one statement; SQLite, which has one writer
at a time anyway, in two. Both do the same: a row changes only if its status and fence still are
what the caller saw.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from uuid import UUID

from django.core.serializers.json import DjangoJSONEncoder
from django.db import connections, models, transaction

if TYPE_CHECKING:
    from orchestrator.state_machine import Machine, Move, Transition

M = TypeVar("M", bound=models.Model)


@dataclass(frozen=True)
class Terms:
    """What one statement of PostgreSQL's adds to a swap."""

    columns: Sequence[str] = ()
    """Those that the conditions read."""
    conditions: str = "TRUE"
    """Must hold besides the comparison, such as `locked.start_by > %s`."""
    assignments: str = ""
    """Set besides what is the same for every row, such as `late_at = subject.start_by + %s`."""
    condition_parameters: Sequence[Any] = ()
    assignment_parameters: Sequence[Any] = ()


NO_TERMS = Terms()


class SwapQuerySet(models.QuerySet[M]):
    def swap(
        self,
        machine: Machine,
        way: Sequence[Transition],
        moves: Sequence[Move],
        *,
        now: datetime,
        actor: str,
        reason: str | None,
        wait_for_locks: bool,
    ) -> set[UUID]:
        """Swap what still compares; returns the ids that moved. Only the state machine calls it.

        `wait_for_locks`: see `transition_many`.
        """
        common = _columns_set_by(machine, way, moves[0].values, now=now, reason=reason)
        told = _told_by_history(machine, now=now, actor=actor, reason=reason)
        if connections[self.db].vendor != "postgresql":
            return _swap_sqlite(self, machine, _hops(way), moves, common, told)
        sql, parameters = _postgresql_statement(
            self,
            machine,
            _hops(way),
            moves,
            common,
            told,
            returning=["id"],
            wait_for_locks=wait_for_locks,
        )
        with connections[self.db].cursor() as cursor:
            cursor.execute(sql, parameters)
            return {row[0] for row in cursor.fetchall()}

    def swap_on_terms(
        self,
        machine: Machine,
        rule: Transition,
        moves: Sequence[Move],
        terms: Terms,
        *,
        without: Collection[str] = (),
        now: datetime,
        actor: str,
    ) -> list[M]:
        """Swap what still compares and meets the terms; returns the rows as they are now, without
        these columns.

        For the hot path on PostgreSQL: what would be a SELECT and an UPDATE is one statement.
        Rows that another transaction holds are passed over.
        """
        common = _columns_set_by(machine, [rule], {}, now=now, reason=None)
        told = _told_by_history(machine, now=now, actor=actor, reason=None)
        fields = [field for field in self.model._meta.concrete_fields if field.name not in without]
        columns = [str(field.column) for field in fields]
        statement = _postgresql_statement(
            self, machine, _hops([rule]), moves, common, told, returning=columns, terms=terms
        )
        return list(self.raw(*statement))


class Hop(NamedTuple):
    """One of the transitions that a row makes at once, as its history tells of it."""

    number: int
    event: str
    origin: str | None
    """None: where the row was."""
    target: str
    raised: int
    """How far the fence is above where it was."""


def _hops(way: Sequence[Transition]) -> list[Hop]:
    origins: list[str | None] = [None, *(rule.target.value for rule in way)]
    raised = accumulate(int(rule.new_attempt) for rule in way)
    return [
        Hop(number, rule.event, origin, rule.target.value, by)
        for number, (rule, origin, by) in enumerate(zip(way, origins, raised, strict=False))
    ]


def _columns_set_by(
    machine: Machine,
    way: Sequence[Transition],
    given: Mapping[str, Any],
    *,
    now: datetime,
    reason: str | None,
) -> dict[str, Any]:
    """What the transitions themselves write: the same for every row, unless the moves say it."""
    target = way[-1].target
    values: dict[str, Any] = {machine.column: target.value}
    values |= dict.fromkeys(machine.cleared_columns)
    values |= dict.fromkeys(machine.entered_columns, now)
    if stamp := machine.stamps.get(target):
        values[stamp] = now
    if target in machine.ended:
        values["ended_at"] = now
    elif way[0].sources & machine.ended:
        values["ended_at"] = None
    if reason is not None and machine.reason_column:
        values[machine.reason_column] = str(reason)
    return {name: value for name, value in values.items() if name not in given}


def _told_by_history(
    machine: Machine, *, now: datetime, actor: str, reason: str | None
) -> dict[str, Any]:
    """What a row of history says that is the same for every row and every transition of it."""
    told = {"actor": actor, "reason": str(reason or ""), "at": now}
    if machine.keeps_processor:
        told["processor"] = processor()
    return told


@cache
def _host() -> str:
    return socket.gethostname()


def processor() -> str:
    """This process, as the history names it: host and process id."""
    return f"{_host()}:{os.getpid()}"[:100]


def _swap_sqlite(
    queryset: SwapQuerySet[Any],
    machine: Machine,
    hops: Sequence[Hop],
    moves: Sequence[Move],
    common: Mapping[str, Any],
    told: Mapping[str, Any],
) -> set[UUID]:
    """One statement for the rows, in which `json_each` brings the batch, and one for the history;
    two, as SQLite knows no INSERT of what an UPDATE returns."""
    history = queryset.model._meta.get_field("history").related_model
    column, fence = machine.column, machine.fence
    with transaction.atomic(using=queryset.db), connections[queryset.db].cursor() as cursor:
        cursor.execute(*_sqlite_statement(queryset, machine, hops, moves, common))
        ids = {UUID(hex=row[0]) for row in cursor.fetchall()}
        moved = {move.id: move for move in moves if move.id in ids}
        keys = _history_keys(queryset, machine, moved)
        history.objects.using(queryset.db).bulk_create(
            history(
                **keys[move.id],
                **told,
                **{
                    "event": hop.event,
                    f"from_{column}": hop.origin or move.status,
                    f"to_{column}": hop.target,
                    fence: move.attempt + hop.raised,
                },
            )
            for move in moved.values()
            for hop in hops
        )
    return ids


def _sqlite_statement(
    queryset: SwapQuerySet[Any],
    machine: Machine,
    hops: Sequence[Hop],
    moves: Sequence[Move],
    common: Mapping[str, Any],
) -> tuple[str, list[Any]]:
    meta, connection = queryset.model._meta, connections[queryset.db]
    column, fence = machine.column, machine.fence
    quote = connection.ops.quote_name
    fields = [meta.get_field(name) for name in moves[0].values]

    def stored(field: Any, value: Any) -> Any:
        return field.get_db_prep_save(getattr(value, "pk", value), connection)

    batch = [
        [
            move.id.hex, str(move.status), move.attempt,
            *(stored(field, move.values[field.name]) for field in fields),
        ]
        for move in moves
    ]  # fmt: skip
    assignments = [f"{quote(meta.get_field(name).column)} = %s" for name in common]
    assignments += [
        f"{quote(field.column)} = json_extract(batch.value, '$[{number}]')"
        for number, field in enumerate(fields, 3)
    ]
    sql = f"""
        UPDATE {quote(meta.db_table)} AS subject
        SET {", ".join(assignments)}, {fence} = subject.{fence} + %s
        FROM json_each(%s) AS batch
        WHERE subject.id = json_extract(batch.value, '$[0]')
          AND subject.{column} = json_extract(batch.value, '$[1]')
          AND subject.{fence} = json_extract(batch.value, '$[2]')
        RETURNING id
    """  # noqa: S608 - every interpolated name is a column of our own model
    values = [stored(meta.get_field(name), value) for name, value in common.items()]
    return sql, [*values, hops[-1].raised, json.dumps(batch)]


def _history_keys(
    queryset: SwapQuerySet[Any], machine: Machine, moved: Collection[UUID]
) -> dict[UUID, dict[str, Any]]:
    """What a row of history takes over from the row that it tells of."""
    keys = machine.history_keys
    if set(keys.values()) == {"id"}:
        return {id: dict.fromkeys(keys, id) for id in moved}
    rows = queryset.filter(pk__in=moved).values_list("pk", *keys.values())
    return {id: dict(zip(keys, values, strict=True)) for id, *values in rows}


def _postgresql_statement(
    queryset: SwapQuerySet[Any],
    machine: Machine,
    hops: Sequence[Hop],
    moves: Sequence[Move],
    common: Mapping[str, Any],
    told: Mapping[str, Any],
    *,
    returning: Sequence[str],
    wait_for_locks: bool = False,
    terms: Terms = NO_TERMS,
) -> tuple[str, list[Any]]:
    """One statement: `unnest` brings the batch, the update compares, its history is inserted.

    Rows are locked in the order of their ids, so that two batches that overlap cannot deadlock.
    Without `wait_for_locks`, what another transaction holds is not locked, and does not move.
    All that is compared is compared in what was locked: conditions on the table itself made the
    planner expect one row of it and read the whole table for each row of the batch.
    """
    meta, connection = queryset.model._meta, connections[queryset.db]
    history = meta.get_field("history").related_model._meta.db_table
    column, fence = machine.column, machine.fence
    fields = [meta.get_field(name) for name in moves[0].values]
    # not arrays of text: the driver escapes their elements character by character, in Python, which
    # takes a second for a megabyte of output, and holds up the whole process meanwhile
    documents: list[tuple[str, str]] = []
    arrays: list[tuple[str, str, list[Any]]] = [
        ("id", "uuid", [move.id for move in moves]),
        (column, "text", [str(move.status) for move in moves]),
        (fence, "int", [move.attempt for move in moves]),
    ]
    for field in fields:
        kind = field.db_type(connection).split("(")[0]
        values = [move.values[field.name] for move in moves]
        if isinstance(field, models.JSONField):
            documents.append((str(field.column), f"[{','.join(map(_json, values))}]"))
            continue
        if isinstance(field, models.ForeignKey):
            values = [getattr(value, "pk", value) for value in values]
        arrays.append((field.column, kind, values))

    quote = connection.ops.quote_name
    unnested = ", ".join(
        [f"unnest(%s::{kind}[])" for _, kind, _ in arrays]
        + ["jsonb_array_elements(%s::jsonb)"] * len(documents)
    )
    names = ", ".join(f"new_{column}" for column, *_ in (*arrays, *documents))
    assignments = [f"{quote(meta.get_field(name).column)} = %s" for name in common]
    assignments += [f"{quote(c)} = locked.new_{c}::{kind}" for c, kind, _ in arrays[3:]]
    assignments += [f"{quote(c)} = NULLIF(locked.new_{c}, 'null')" for c, _ in documents]
    assignments.append(f"{fence} = subject.{fence} + %s")
    if terms.assignments:
        assignments.append(terms.assignments)
    keys = machine.history_keys
    returned = ", ".join(
        f"subject.{quote(name)}" for name in dict.fromkeys([*returning, *keys.values()])
    )
    compared = ", ".join(f"subject.{quote(name)}" for name in (column, fence, *terms.columns))
    rows = ", ".join(["(%s::int, %s, %s, %s, %s::int)"] * len(hops))
    table = quote(meta.db_table)
    held = "" if wait_for_locks else "SKIP LOCKED"
    sql = f"""
        WITH batch AS (SELECT * FROM ROWS FROM ({unnested}) AS batch ({names})),
        locked AS (
            SELECT {compared}, batch.*
            FROM {table} AS subject JOIN batch ON subject.id = batch.new_id
            ORDER BY subject.id FOR NO KEY UPDATE OF subject {held}
        ),
        moved AS (
            UPDATE {table} AS subject SET {", ".join(assignments)}
            FROM locked
            WHERE subject.id = locked.new_id
              AND locked.{column} = locked.new_{column} AND locked.{fence} = locked.new_{fence}
              AND {terms.conditions}
            RETURNING {returned}, locked.new_{column} AS seen, locked.new_{fence} AS seen_fence
        ),
        history AS (
            INSERT INTO {quote(history)}
                ({", ".join([*keys, "event", f"from_{column}", f"to_{column}", fence, *told])})
            SELECT {", ".join(f"moved.{key}" for key in keys.values())}, hop.event,
                COALESCE(hop.origin, moved.seen), hop.target, moved.seen_fence + hop.raised,
                {", ".join(["%s"] * len(told))}
            FROM moved CROSS JOIN (VALUES {rows}) AS hop (number, event, origin, target, raised)
            ORDER BY hop.number
        )
        SELECT {", ".join(map(quote, returning))} FROM moved
    """  # noqa: S608 - every interpolated name is a column of our own model
    parameters = [
        *(values for _, _, values in arrays),
        *(written for _, written in documents),
        *common.values(),
        hops[-1].raised,
        *terms.assignment_parameters,
        *terms.condition_parameters,
        *told.values(),
        *(value for hop in hops for value in hop),
    ]
    return sql, parameters


def _json(value: Any) -> str:
    return json.dumps(value, cls=DjangoJSONEncoder)
