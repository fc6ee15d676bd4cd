"""A swap on PostgreSQL: the batch, the comparison, the rows and their history in one statement."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

from django.core.serializers.json import DjangoJSONEncoder
from django.db import connections, models

from orchestrator.core.state_machine.swap import Swap


class Fragment(NamedTuple):
    """A piece of SQL with the parameters of its own placeholders, so that no two lists must be kept
    in the same order."""

    sql: str
    parameters: Sequence[Any] = ()


ALWAYS = Fragment("TRUE")


@dataclass(frozen=True)
class Terms:
    """Conditions and assignments of one event, besides the comparison."""

    columns: Sequence[str] = ()
    """Columns that the condition reads, as `locked.<column>`."""
    condition: Fragment = ALWAYS
    """Such as `locked.start_by > %s`."""
    assignments: Sequence[Fragment] = ()
    """Set besides what is the same for every row, such as `late_at = subject.start_by + %s`."""


NO_TERMS = Terms()


def carry_out(swap: Swap, *, using: str, wait_for_locks: bool) -> set[UUID]:
    """Swap the rows that still match; returns the ids that moved."""
    statement = Statement(swap, using).fragment(["id"], wait_for_locks=wait_for_locks)
    with connections[using].cursor() as cursor:
        cursor.execute(*statement)
        return {row[0] for row in cursor.fetchall()}


def carry_out_on_terms(
    swap: Swap, terms: Terms, *, without: Collection[str], using: str
) -> list[Any]:
    """Swap the rows that still match and meet the terms; returns them as they are now, without
    these fields. Rows that another transaction holds are skipped."""
    fields = [field for field in swap.model._meta.concrete_fields if field.name not in without]
    columns = [str(field.column) for field in fields]
    sql, parameters = Statement(swap, using).fragment(columns, terms=terms)
    return list(swap.model._default_manager.using(using).raw(sql, parameters))


class Statement:
    """The statement of one swap, built from four parts:

    1. `batch`: the moves, as rows.
    2. `locked`: the rows that they name, locked.
    3. `moved`: the locked rows that still match, updated.
    4. `history`: a row for each transition of each.
    """

    def __init__(self, swap: Swap, using: str) -> None:
        self.swap, self.meta, self.machine = swap, swap.model._meta, swap.machine
        self.connection = connections[using]
        self.quote = self.connection.ops.quote_name
        self.table = self.quote(self.meta.db_table)
        self.arrays, self.documents = self._values_of_moves()

    def fragment(
        self, returning: Sequence[str], *, wait_for_locks: bool = False, terms: Terms = NO_TERMS
    ) -> Fragment:
        """Build the whole statement; it returns these columns of the rows that moved."""
        batch = self.batch()
        locked = self.locked(terms, wait_for_locks=wait_for_locks)
        moved = self.moved(returning, terms)
        history = self.history()
        sql = f"""
        WITH batch AS ({batch.sql}),
        locked AS ({locked.sql}),
        moved AS ({moved.sql}),
        history AS ({history.sql})
        SELECT {", ".join(map(self.quote, returning))} FROM moved
        """  # noqa: S608 - every interpolated name is a column of our own model
        parts = batch, locked, moved, history
        return Fragment(sql, [value for part in parts for value in part.parameters])

    def batch(self) -> Fragment:
        """Turn each move into a row of `new_...` columns."""
        unnested = [f"unnest(%s::{kind}[])" for _, kind, _ in self.arrays]
        unnested += ["jsonb_array_elements(%s::jsonb)"] * len(self.documents)
        names = ", ".join(f"new_{column}" for column, *_ in (*self.arrays, *self.documents))
        return Fragment(
            f"SELECT * FROM ROWS FROM ({', '.join(unnested)}) AS batch ({names})",  # noqa: S608
            [values[-1] for values in (*self.arrays, *self.documents)],
        )

    def locked(self, terms: Terms, *, wait_for_locks: bool) -> Fragment:
        """Lock the rows in the order of their ids, so that two overlapping batches cannot deadlock.

        FOR NO KEY UPDATE, as rows that refer to this one lock it FOR KEY SHARE. Without
        `wait_for_locks`, rows that another transaction holds are skipped, and do not move.
        """
        compared = [self.machine.column, self.machine.fence, *terms.columns]
        columns = ", ".join(f"subject.{self.quote(name)}" for name in compared)
        return Fragment(f"""
            SELECT {columns}, batch.*
            FROM {self.table} AS subject JOIN batch ON subject.id = batch.new_id
            ORDER BY subject.id
            FOR NO KEY UPDATE OF subject {"" if wait_for_locks else "SKIP LOCKED"}
        """)  # noqa: S608 - every interpolated name is a column of our own model

    def moved(self, returning: Sequence[str], terms: Terms) -> Fragment:
        """Compare and update.

        Every comparison reads `locked`: with conditions on the table itself, the planner expected
        one row, and read the whole table for each row of the batch.
        """
        column, fence = self.machine.column, self.machine.fence
        assigned = [*self._assignments(), *terms.assignments]
        kept = dict.fromkeys([*returning, *self.machine.history_keys.values()])
        returned = ", ".join(f"subject.{self.quote(name)}" for name in kept)
        sql = f"""
            UPDATE {self.table} AS subject
            SET {", ".join(assignment.sql for assignment in assigned)}
            FROM locked
            WHERE subject.id = locked.new_id
              AND locked.{column} = locked.new_{column} AND locked.{fence} = locked.new_{fence}
              AND {terms.condition.sql}
            RETURNING {returned}, locked.new_{column} AS seen, locked.new_{fence} AS seen_fence
        """  # noqa: S608 - every interpolated name is a column of our own model
        return Fragment(sql, [*_parameters(assigned), *terms.condition.parameters])

    def history(self) -> Fragment:
        """Insert a row for each hop of each row that moved, in the order of the hops."""
        column, fence, same = self.machine.column, self.machine.fence, self.swap.history
        keys, hops = self.machine.history_keys, self.swap.hops
        table = self.quote(self.swap.history_model._meta.db_table)
        columns = [*keys, "event", f"from_{column}", f"to_{column}", fence, *same]
        rows = ", ".join(["(%s::int, %s, %s, %s, %s::int)"] * len(hops))
        sql = f"""
            INSERT INTO {table} ({", ".join(columns)})
            SELECT {", ".join(f"moved.{key}" for key in keys.values())}, hop.event,
                COALESCE(hop.origin, moved.seen), hop.target, moved.seen_fence + hop.raised,
                {", ".join(["%s"] * len(same))}
            FROM moved CROSS JOIN (VALUES {rows}) AS hop (number, event, origin, target, raised)
            ORDER BY hop.number
        """  # noqa: S608 - every interpolated name is a column of our own model
        return Fragment(sql, [*same.values(), *(value for hop in hops for value in hop)])

    def _assignments(self) -> Iterable[Fragment]:
        """The values common to all rows, those of each move, and the fence."""
        for name, value in self.swap.common.items():
            yield Fragment(f"{self._column(name)} = %s", [value])
        for column, kind, _ in self.arrays[3:]:
            yield Fragment(f"{self.quote(column)} = locked.new_{column}::{kind}")
        for column, _ in self.documents:
            yield Fragment(f"{self.quote(column)} = NULLIF(locked.new_{column}, 'null')")
        fence = self.machine.fence
        yield Fragment(f"{fence} = subject.{fence} + %s", [self.swap.raised])

    def _column(self, name: str) -> str:
        return self.quote(self.swap.field(name).column)

    def _values_of_moves(self) -> tuple[list[tuple[str, str, list[Any]]], list[tuple[str, str]]]:
        """Arrays of (column, type, values), of which the first three are compared, and JSON
        documents of (column, values).

        JSON does not go as an array of text: the driver escapes its elements character by
        character, in Python, which takes a second for a megabyte and blocks the whole process.
        """
        moves = self.swap.moves
        documents: list[tuple[str, str]] = []
        arrays: list[tuple[str, str, list[Any]]] = [
            ("id", "uuid", [move.id for move in moves]),
            (self.machine.column, "text", [str(move.status) for move in moves]),
            (self.machine.fence, "int", [move.attempt for move in moves]),
        ]
        for field in self.swap.fields:
            values = [move.values[field.name] for move in moves]
            if isinstance(field, models.JSONField):
                documents.append((str(field.column), f"[{','.join(map(_json, values))}]"))
                continue
            if isinstance(field, models.ForeignKey):
                values = [getattr(value, "pk", value) for value in values]
            kind = str(field.db_type(self.connection)).split("(")[0]
            arrays.append((field.column, kind, values))
        return arrays, documents


def _parameters(fragments: Iterable[Fragment]) -> list[Any]:
    return [value for fragment in fragments for value in fragment.parameters]


def _json(value: Any) -> str:
    return json.dumps(value, cls=DjangoJSONEncoder)
