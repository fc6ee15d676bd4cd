"""How a transition is written: both databases' ways, side by side.

PostgreSQL takes a whole batch, with its history, in one statement. SQLite, which has one writer
at a time anyway, takes row after row in one transaction. Both do the same: a row changes only if
its status and attempt still are what the caller saw.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from django.core.serializers.json import DjangoJSONEncoder
from django.db import connections, models, transaction

if TYPE_CHECKING:
    from orchestrator.reasons import Reason
    from orchestrator.state_machine import Move, Transition

M = TypeVar("M", bound=models.Model)


class SwapQuerySet(models.QuerySet[M]):
    def swap(
        self,
        rule: Transition,
        moves: Sequence[Move],
        *,
        now: datetime,
        actor: str,
        reason: Reason | None,
    ) -> set[UUID]:
        """Swap what still compares; returns the ids that moved. Only the state machine calls it."""
        common = _columns_set_by(rule, now=now, reason=reason)
        swap = _swap_postgresql if connections[self.db].vendor == "postgresql" else _swap_portably
        return swap(self, rule, moves, common, now, actor, str(reason or ""))


def _columns_set_by(rule: Transition, *, now: datetime, reason: Reason | None) -> dict[str, Any]:
    """What the transition itself writes: the same for every row."""
    values: dict[str, Any] = {"status": rule.target.value}
    stamps = {
        "scheduled": "scheduled_at",
        "running": "started_at",
        "canceling": "cancel_requested_at",
    }
    if stamp := stamps.get(rule.target.value):
        values[stamp] = now
    if rule.is_terminal:
        values["ended_at"] = now
    if reason is not None:
        values["reason"] = reason.value
    return values


def _swap_portably(
    queryset: SwapQuerySet[Any],
    rule: Transition,
    moves: Sequence[Move],
    common: Mapping[str, Any],
    now: datetime,
    actor: str,
    reason: str,
) -> set[UUID]:
    history = queryset.model._meta.get_field("history").related_model
    moved: dict[UUID, Any] = {}
    step = 1 if rule.new_attempt else 0
    with transaction.atomic(using=queryset.db):
        for move in moves:
            matched = queryset.filter(pk=move.id, status=move.status, attempt=move.attempt)
            if matched.update(**common, **move.values, attempt=move.attempt + step):
                moved[move.id] = history(
                    execution_id=move.id,
                    event=rule.event,
                    from_status=move.status,
                    to_status=rule.target,
                    attempt=move.attempt + step,
                    actor=actor,
                    reason=reason,
                    at=now,
                )
        history.objects.using(queryset.db).bulk_create(moved.values())
    return set(moved)


def _swap_postgresql(
    queryset: SwapQuerySet[Any],
    rule: Transition,
    moves: Sequence[Move],
    common: Mapping[str, Any],
    now: datetime,
    actor: str,
    reason: str,
) -> set[UUID]:
    """One statement: `unnest` brings the batch, the update compares, its history is inserted.

    Rows are locked in the order of their ids, so that two batches that overlap cannot deadlock.
    """
    meta, connection = queryset.model._meta, connections[queryset.db]
    history = meta.get_field("history").related_model._meta.db_table
    fields = [meta.get_field(name) for name in moves[0].values]
    arrays: list[tuple[str, str, list[Any]]] = [
        ("id", "uuid", [move.id for move in moves]),
        ("status", "text", [str(move.status) for move in moves]),
        ("attempt", "int", [move.attempt for move in moves]),
    ]
    for field in fields:
        column, kind = field.column, field.db_type(connection).split("(")[0]
        values = [move.values[field.name] for move in moves]
        if isinstance(field, models.JSONField):
            values = [None if value is None else _json(value) for value in values]
        elif isinstance(field, models.ForeignKey):
            values = [getattr(value, "pk", value) for value in values]
        arrays.append((column, kind, values))

    quote = connection.ops.quote_name
    unnested = ", ".join(f"%s::{'text' if kind == 'jsonb' else kind}[]" for _, kind, _ in arrays)
    names = ", ".join(f"new_{column}" for column, _, _ in arrays)
    assignments = [f"{quote(meta.get_field(name).column)} = %s" for name in common]
    assignments += [f"{quote(c)} = batch.new_{c}::{kind}" for c, kind, _ in arrays[3:]]
    if rule.new_attempt:
        assignments.append("attempt = execution.attempt + 1")
    table = quote(meta.db_table)
    sql = f"""
        WITH batch AS (SELECT * FROM unnest({unnested}) AS batch ({names})),
        locked AS (
            SELECT execution.id FROM {table} AS execution JOIN batch ON execution.id = batch.new_id
            ORDER BY execution.id FOR NO KEY UPDATE OF execution
        ),
        moved AS (
            UPDATE {table} AS execution SET {", ".join(assignments)}
            FROM batch JOIN locked ON locked.id = batch.new_id
            WHERE execution.id = batch.new_id
              AND execution.status = batch.new_status AND execution.attempt = batch.new_attempt
            RETURNING execution.id, batch.new_status AS from_status, execution.attempt
        ),
        history AS (
            INSERT INTO {quote(history)}
                (execution_id, event, from_status, to_status, attempt, actor, reason, at)
            SELECT id, %s, from_status, %s, attempt, %s, %s, %s FROM moved
        )
        SELECT id FROM moved
    """  # noqa: S608 - every interpolated name is a column of our own model
    parameters = [
        *(values for _, _, values in arrays),
        *common.values(),
        rule.event,
        rule.target.value,
        actor,
        reason,
        now,
    ]
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        return {row[0] for row in cursor.fetchall()}


def _json(value: Any) -> str:
    return json.dumps(value, cls=DjangoJSONEncoder)
