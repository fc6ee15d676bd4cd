"""A swap on PostgreSQL: the batch, the comparison, the rows and their history in one statement."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar
from uuid import UUID

from django.core.serializers.json import DjangoJSONEncoder
from django.db import connection, models

from orchestrator.core.state_machine.swap import Form, Hop, Swap
from orchestrator.core.statements import Rows, Statement, type_of

M = TypeVar("M", bound=models.Model)


@dataclass(frozen=True)
class Terms:
    """Conditions and assignments of one event, besides the comparison. Their placeholders are
    `%(name)s`; the values come with each swap."""

    columns: tuple[str, ...] = ()
    """Columns that the condition reads, as `locked.<column>`."""
    condition: str = "TRUE"
    """Such as `locked.start_by > %(now)s`."""
    assignments: tuple[str, ...] = ()
    """Set besides what is the same for every row, such as `late_at = subject.start_by + %(by)s`."""


NO_TERMS = Terms()


def carry_out(swap: Swap, *, using: str, wait_for_locks: bool) -> set[UUID]:
    """Swap the rows that still match; returns the ids that moved."""
    statement = _statement(swap.form, ("id",), NO_TERMS, wait_for_locks)
    return {id for (id,) in statement.execute(_values(swap), using=using)}


def carry_out_on_terms(
    swap: Swap, terms: Terms, values: Mapping[str, Any], rows: Rows[M], *, using: str
) -> list[M]:
    """Swap the rows that still match and meet the terms, with these values; returns them as they
    are now. Rows that another transaction holds are skipped."""
    statement = _statement(swap.form, rows.columns, terms, False)
    moved = statement.execute({**_values(swap), **values}, using=using)
    return rows.read(moved, using=using)


@cache
def _statement(
    form: Form, returning: tuple[str, ...], terms: Terms, wait_for_locks: bool
) -> Statement:
    return Statement(_Text(form).whole(returning, terms, wait_for_locks=wait_for_locks))


class _Text:
    """The text of a swap's statement, built from four parts:

    1. `batch`: the moves, as rows.
    2. `locked`: the rows that they name, locked.
    3. `moved`: the locked rows that still match, updated.
    4. `history`: a row for each transition of each, if the machine keeps one.
    """

    def __init__(self, form: Form) -> None:
        self.form, self.machine = form, form.machine
        self.quote = connection.ops.quote_name
        self.table = self.quote(form.model._meta.db_table)

    def whole(self, returning: Iterable[str], terms: Terms, *, wait_for_locks: bool) -> str:
        """The whole statement; it returns these columns of the rows that moved."""
        named = {
            "batch": self.batch(),
            "locked": self.locked(terms, wait_for_locks=wait_for_locks),
            "moved": self.moved(returning, terms),
        }
        if self.machine.keeps_history:
            named["history"] = self.history()
        parts = ", ".join(f"{name} AS ({sql})" for name, sql in named.items())
        return f"WITH {parts} SELECT {', '.join(map(self.quote, returning))} FROM moved"  # noqa: S608 - our own columns

    def batch(self) -> str:
        """Turn each move into a row of `new_...` columns: first the three that are compared.

        JSON does not go as an array of text: there each of its quotes is escaped, which takes a
        tenth of a second for a megabyte.
        """
        kinds = {"id": "uuid", self.machine.column: "text", self.machine.fence: "int"}
        kinds |= {field.column: type_of(field) for field in self.form.own_fields}
        unnested = ", ".join(
            f"jsonb_array_elements(%(new_{column})s::jsonb)"
            if kind == "jsonb"
            else f"unnest(%(new_{column})s::{kind}[])"
            for column, kind in kinds.items()
        )
        names = ", ".join(f"new_{column}" for column in kinds)
        return f"SELECT * FROM ROWS FROM ({unnested}) AS batch ({names})"  # noqa: S608

    def locked(self, terms: Terms, *, wait_for_locks: bool) -> str:
        """Lock the rows in the order of their ids, so that two overlapping batches cannot deadlock.

        FOR NO KEY UPDATE, as rows that refer to this one lock it FOR KEY SHARE. Without
        `wait_for_locks`, rows that another transaction holds are skipped, and do not move.
        """
        compared = [self.machine.column, self.machine.fence, *terms.columns]
        columns = ", ".join(f"subject.{self.quote(name)}" for name in compared)
        return f"""
            SELECT {columns}, batch.*
            FROM {self.table} AS subject JOIN batch ON subject.id = batch.new_id
            ORDER BY subject.id
            FOR NO KEY UPDATE OF subject {"" if wait_for_locks else "SKIP LOCKED"}
        """  # noqa: S608 - every interpolated name is a column of our own model

    def moved(self, returning: Iterable[str], terms: Terms) -> str:
        """Compare and update.

        Every comparison reads `locked`: with conditions on the table itself, the planner expected
        one row, and read the whole table for each row of the batch.
        """
        column, fence = self.machine.column, self.machine.fence
        assigned = ", ".join([*self._assignments(), *terms.assignments])
        kept = dict.fromkeys([*returning, *self.machine.history_keys.values()])
        returned = ", ".join(f"subject.{self.quote(name)}" for name in kept)
        return f"""
            UPDATE {self.table} AS subject
            SET {assigned}
            FROM locked
            WHERE subject.id = locked.new_id
              AND locked.{column} = locked.new_{column} AND locked.{fence} = locked.new_{fence}
              AND {terms.condition}
            RETURNING {returned}, locked.new_{column} AS seen, locked.new_{fence} AS seen_fence
        """  # noqa: S608 - every interpolated name is a column of our own model

    def history(self) -> str:
        """Insert a row for each hop of each row that moved, in the order of the hops."""
        column, fence, same = self.machine.column, self.machine.fence, self.form.history
        keys = self.machine.history_keys
        table = self.quote(self.form.history_model._meta.db_table)
        columns = [*keys, "event", f"from_{column}", f"to_{column}", fence, *same]
        hops = ", ".join(map(_row_of_hop, self.form.hops))
        return f"""
            INSERT INTO {table} ({", ".join(columns)})
            SELECT {", ".join(f"moved.{key}" for key in keys.values())}, hop.event,
                COALESCE(hop.origin, moved.seen), hop.target, moved.seen_fence + hop.raised,
                {", ".join(f"%(history_{name})s" for name in same)}
            FROM moved CROSS JOIN (VALUES {hops}) AS hop (number, event, origin, target, raised)
            ORDER BY hop.number
        """  # noqa: S608 - every interpolated name is a column of our own model

    def _assignments(self) -> Iterable[str]:
        """The values common to all rows, those of each move, and the fence."""
        for field in self.form.common_fields:
            yield f"{self.quote(field.column)} = %(common_{field.name})s"
        for field in self.form.own_fields:
            new = f"locked.new_{field.column}"
            new = f"NULLIF({new}, 'null')" if type_of(field) == "jsonb" else new
            yield f"{self.quote(field.column)} = {new}"
        fence = self.machine.fence
        yield f"{fence} = subject.{fence} + {self.form.raised}"


def _row_of_hop(hop: Hop) -> str:
    origin = "NULL" if hop.origin is None else f"'{hop.origin}'"
    return f"({hop.number}, '{hop.event}', {origin}, '{hop.target}', {hop.raised})"


def _values(swap: Swap) -> dict[str, Any]:
    """The values of a swap's statement: an array for each column of the batch, and the common
    ones."""
    machine, moves = swap.form.machine, swap.moves
    values: dict[str, Any] = {
        "new_id": [move.id for move in moves],
        f"new_{machine.column}": [str(move.status) for move in moves],
        f"new_{machine.fence}": [move.attempt for move in moves],
        **{f"common_{name}": value for name, value in swap.common.items()},
        **{f"history_{name}": value for name, value in swap.history.items()},
    }
    for field in swap.form.own_fields:
        each = [move.values[field.name] for move in moves]
        if isinstance(field, models.JSONField):
            values[f"new_{field.column}"] = f"[{','.join(map(_json, each))}]"
        else:
            values[f"new_{field.column}"] = [getattr(value, "pk", value) for value in each]
    return values


def _json(value: Any) -> str:
    return json.dumps(value, cls=DjangoJSONEncoder)
