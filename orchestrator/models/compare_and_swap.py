"""How a transition is written: both databases' ways, side by side.

PostgreSQL takes a whole batch, with its history, in one statement. SQLite, which has one writer
at a time anyway, takes row after row in one transaction. Both do the same: a row changes only if
its status and fence still are what the caller saw.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from django.core.serializers.json import DjangoJSONEncoder
from django.db import connections, models, transaction

if TYPE_CHECKING:
    from orchestrator.state_machine import Machine, Move, Transition

M = TypeVar("M", bound=models.Model)


@dataclass(frozen=True)
class Terms:
    """What one statement of PostgreSQL's adds to a swap. SQL in which `subject` is the row."""

    conditions: str = "TRUE"
    """Must hold besides the comparison, such as `subject.start_by > %s`."""
    assignments: str = ""
    """Set besides what is the same for every row, such as `run_deadline_at = %s + ...`."""
    condition_parameters: Sequence[Any] = ()
    assignment_parameters: Sequence[Any] = ()


NO_TERMS = Terms()


class SwapQuerySet(models.QuerySet[M]):
    def swap(
        self,
        machine: Machine,
        rule: Transition,
        moves: Sequence[Move],
        *,
        now: datetime,
        actor: str,
        reason: str | None,
    ) -> set[UUID]:
        """Swap what still compares; returns the ids that moved. Only the state machine calls it."""
        common = _columns_set_by(machine, rule, moves[0].values, now=now, reason=reason)
        told = _told_by_history(machine, rule, now=now, actor=actor, reason=reason)
        swap = _swap_postgresql if connections[self.db].vendor == "postgresql" else _swap_portably
        return swap(self, machine, rule, moves, common, told)

    def swap_on_terms(
        self,
        machine: Machine,
        rule: Transition,
        moves: Sequence[Move],
        terms: Terms,
        *,
        now: datetime,
        actor: str,
    ) -> list[M]:
        """Swap what still compares and meets the terms; returns the rows as they are now.

        For the hot path on PostgreSQL: what would be a SELECT and an UPDATE is one statement.
        """
        common = _columns_set_by(machine, rule, {}, now=now, reason=None)
        told = _told_by_history(machine, rule, now=now, actor=actor, reason=None)
        columns = [str(field.column) for field in self.model._meta.concrete_fields]
        statement = _postgresql_statement(
            self, machine, rule, moves, common, told, returning=columns, terms=terms
        )
        return list(self.raw(*statement))


def _columns_set_by(
    machine: Machine,
    rule: Transition,
    given: Mapping[str, Any],
    *,
    now: datetime,
    reason: str | None,
) -> dict[str, Any]:
    """What the transition itself writes: the same for every row. What the moves give goes first."""
    values: dict[str, Any] = {machine.column: rule.target.value}
    values |= dict.fromkeys(machine.cleared_columns)
    values |= dict.fromkeys(machine.entered_columns, now)
    if stamp := machine.stamps.get(rule.target):
        values[stamp] = now
    if rule.target in machine.ended:
        values["ended_at"] = now
    elif rule.sources & machine.ended:
        values["ended_at"] = None
    if reason is not None and machine.reason_column:
        values[machine.reason_column] = str(reason)
    return {name: value for name, value in values.items() if name not in given}


def _told_by_history(
    machine: Machine, rule: Transition, *, now: datetime, actor: str, reason: str | None
) -> dict[str, Any]:
    """What a row of history says that is the same for every row that moved."""
    told = {
        "event": rule.event,
        f"to_{machine.column}": rule.target.value,
        "actor": actor,
        "reason": str(reason or ""),
        "at": now,
    }
    if machine.keeps_processor:
        told["processor"] = processor()
    return told


@cache
def _host() -> str:
    return socket.gethostname()


def processor() -> str:
    """This process, as the history names it: host and process id."""
    return f"{_host()}:{os.getpid()}"[:100]


def _swap_portably(
    queryset: SwapQuerySet[Any],
    machine: Machine,
    rule: Transition,
    moves: Sequence[Move],
    common: Mapping[str, Any],
    told: Mapping[str, Any],
) -> set[UUID]:
    history = queryset.model._meta.get_field("history").related_model
    column, fence = machine.column, machine.fence
    moved: dict[UUID, Any] = {}
    step = 1 if rule.new_attempt else 0
    with transaction.atomic(using=queryset.db):
        for move in moves:
            seen = {column: move.status, fence: move.attempt}
            after = {**common, **move.values, fence: move.attempt + step}
            if queryset.filter(pk=move.id, **seen).update(**after):
                moved[move.id] = {f"from_{column}": move.status, fence: move.attempt + step}
        keys = queryset.filter(pk__in=moved).values_list("pk", *machine.history_keys.values())
        history.objects.using(queryset.db).bulk_create(
            history(**dict(zip(machine.history_keys, key, strict=True)), **moved[id], **told)
            for id, *key in keys
        )
    return set(moved)


def _swap_postgresql(
    queryset: SwapQuerySet[Any],
    machine: Machine,
    rule: Transition,
    moves: Sequence[Move],
    common: Mapping[str, Any],
    told: Mapping[str, Any],
) -> set[UUID]:
    sql, parameters = _postgresql_statement(
        queryset, machine, rule, moves, common, told, returning=["id"]
    )
    with connections[queryset.db].cursor() as cursor:
        cursor.execute(sql, parameters)
        return {row[0] for row in cursor.fetchall()}


def _postgresql_statement(
    queryset: SwapQuerySet[Any],
    machine: Machine,
    rule: Transition,
    moves: Sequence[Move],
    common: Mapping[str, Any],
    told: Mapping[str, Any],
    *,
    returning: Sequence[str],
    terms: Terms = NO_TERMS,
) -> tuple[str, list[Any]]:
    """One statement: `unnest` brings the batch, the update compares, its history is inserted.

    Rows are locked in the order of their ids, so that two batches that overlap cannot deadlock.
    """
    meta, connection = queryset.model._meta, connections[queryset.db]
    history = meta.get_field("history").related_model._meta.db_table
    column, fence = machine.column, machine.fence
    fields = [meta.get_field(name) for name in moves[0].values]
    arrays: list[tuple[str, str, list[Any]]] = [
        ("id", "uuid", [move.id for move in moves]),
        (column, "text", [str(move.status) for move in moves]),
        (fence, "int", [move.attempt for move in moves]),
    ]
    for field in fields:
        kind = field.db_type(connection).split("(")[0]
        values = [move.values[field.name] for move in moves]
        if isinstance(field, models.JSONField):
            values = [None if value is None else _json(value) for value in values]
        elif isinstance(field, models.ForeignKey):
            values = [getattr(value, "pk", value) for value in values]
        arrays.append((field.column, kind, values))

    quote = connection.ops.quote_name
    unnested = ", ".join(f"%s::{'text' if kind == 'jsonb' else kind}[]" for _, kind, _ in arrays)
    names = ", ".join(f"new_{column}" for column, _, _ in arrays)
    assignments = [f"{quote(meta.get_field(name).column)} = %s" for name in common]
    assignments += [f"{quote(c)} = batch.new_{c}::{kind}" for c, kind, _ in arrays[3:]]
    if rule.new_attempt:
        assignments.append(f"{fence} = subject.{fence} + 1")
    if terms.assignments:
        assignments.append(terms.assignments)
    keys = machine.history_keys
    returned = ", ".join(
        f"subject.{quote(name)}" for name in dict.fromkeys([*returning, *keys.values(), fence])
    )
    table = quote(meta.db_table)
    sql = f"""
        WITH batch AS (SELECT * FROM unnest({unnested}) AS batch ({names})),
        locked AS (
            SELECT subject.id FROM {table} AS subject JOIN batch ON subject.id = batch.new_id
            ORDER BY subject.id FOR NO KEY UPDATE OF subject
        ),
        moved AS (
            UPDATE {table} AS subject SET {", ".join(assignments)}
            FROM batch JOIN locked ON locked.id = batch.new_id
            WHERE subject.id = batch.new_id
              AND subject.{column} = batch.new_{column} AND subject.{fence} = batch.new_{fence}
              AND {terms.conditions}
            RETURNING {returned}, batch.new_{column} AS from_{column}
        ),
        history AS (
            INSERT INTO {quote(history)}
                ({", ".join([*keys, f"from_{column}", fence, *told])})
            SELECT {", ".join([*keys.values(), f"from_{column}", fence, *["%s"] * len(told)])}
            FROM moved
        )
        SELECT {", ".join(map(quote, returning))} FROM moved
    """  # noqa: S608 - every interpolated name is a column of our own model
    parameters = [
        *(values for _, _, values in arrays),
        *common.values(),
        *terms.assignment_parameters,
        *terms.condition_parameters,
        *told.values(),
    ]
    return sql, parameters


def _json(value: Any) -> str:
    return json.dumps(value, cls=DjangoJSONEncoder)
