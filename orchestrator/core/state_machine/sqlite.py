"""A swap on SQLite: one statement for the rows, and one for their history.

SQLite has one writer at a time and locks everything or nothing, so there are no row locks to wait
for or to skip. It cannot INSERT what an UPDATE returns, hence two statements.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any
from uuid import UUID

from django.db import connections, transaction

from orchestrator.core.state_machine.swap import Swap


def carry_out(swap: Swap, *, using: str) -> set[UUID]:
    """Swap the rows that still match; returns the ids that moved."""
    with transaction.atomic(using=using):
        moved = _update(swap, using)
        if swap.form.machine.keeps_history:
            _insert_history(swap, moved, using)
    return moved


def _update(swap: Swap, using: str) -> set[UUID]:
    """Update the rows. `json_each` reads the batch, whose elements are
    `[id, status, fence, value of the first field, ...]`."""
    form, connection = swap.form, connections[using]
    column, fence = form.machine.column, form.machine.fence
    quote = connection.ops.quote_name
    fields = form.own_fields

    def stored(field: Any, value: Any) -> Any:
        return field.get_db_prep_save(getattr(value, "pk", value), connection)

    batch = [
        [
            move.id.hex, str(move.status), move.attempt,
            *(stored(field, move.values[field.name]) for field in fields),
        ]
        for move in swap.moves
    ]  # fmt: skip
    common = dict(zip(form.common_fields, swap.common.values(), strict=True))
    assignments = [f"{quote(field.column)} = %s" for field in common]
    assignments += [
        f"{quote(field.column)} = json_extract(batch.value, '$[{number}]')"
        for number, field in enumerate(fields, 3)
    ]
    sql = f"""
        UPDATE {quote(form.model._meta.db_table)} AS subject
        SET {", ".join(assignments)}, {fence} = subject.{fence} + %s
        FROM json_each(%s) AS batch
        WHERE subject.id = json_extract(batch.value, '$[0]')
          AND subject.{column} = json_extract(batch.value, '$[1]')
          AND subject.{fence} = json_extract(batch.value, '$[2]')
        RETURNING id
    """  # noqa: S608 - every interpolated name is a column of our own model
    values = [stored(field, value) for field, value in common.items()]
    with connection.cursor() as cursor:
        cursor.execute(sql, [*values, form.raised, json.dumps(batch)])
        return {UUID(hex=row[0]) for row in cursor.fetchall()}


def _insert_history(swap: Swap, ids: Collection[UUID], using: str) -> None:
    form = swap.form
    history, column, fence = form.history_model, form.machine.column, form.machine.fence
    moved = {move.id: move for move in swap.moves if move.id in ids}
    keys = _history_keys(swap, moved, using)
    history._default_manager.using(using).bulk_create(
        history(
            **keys[move.id],
            **swap.history,
            **{
                "event": hop.event,
                f"from_{column}": hop.origin or move.status,
                f"to_{column}": hop.target,
                fence: move.attempt + hop.raised,
            },
        )
        for move in moved.values()
        for hop in form.hops
    )


def _history_keys(swap: Swap, ids: Collection[UUID], using: str) -> dict[UUID, dict[str, Any]]:
    """The values that each row's history copies from it."""
    keys = swap.form.machine.history_keys
    if set(keys.values()) == {"id"}:
        return {id: dict.fromkeys(keys, id) for id in ids}
    rows = swap.form.model._default_manager.using(using).filter(pk__in=ids)
    taken = rows.values_list("pk", *keys.values())
    return {id: dict(zip(keys, values, strict=True)) for id, *values in taken}
