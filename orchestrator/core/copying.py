"""Many new rows at once.

On PostgreSQL with COPY: 250 executions take 8 ms instead of 29, and a seventh of the processor time
here, as values are neither quoted nor parsed as SQL.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

from django.db import connection, models

from orchestrator.core import database

FEWEST = 2
"""Fewer rows are inserted as fast without."""

Encode = Callable[[Any], Any]


def insert_many(rows: Sequence[models.Model]) -> None:
    """Insert these rows of one model, which have all their values: what the database would fill in
    is not read back, and that includes ids that it gives.

    Raises IntegrityError if a key is taken; then it has inserted nothing.
    """
    if not rows:
        return
    model = type(rows[0])
    if len(rows) < FEWEST or connection.vendor != "postgresql":
        model._default_manager.bulk_create(rows)
        return
    statement, columns = _plan(model)
    connection.ensure_connection()
    with (
        database.noticing_read_only(connection),
        connection.wrap_database_errors,
        connection.connection.cursor() as cursor,
        cursor.copy(statement) as copy,
    ):
        for row in rows:
            values = row.__dict__
            copy.write_row(
                [encode(values[name]) if encode else values[name] for name, encode in columns]
            )
    for row in rows:
        row._state.adding, row._state.db = False, connection.alias


@cache
def _plan(model: type[models.Model]) -> tuple[str, list[tuple[str, Encode | None]]]:
    """The statement, and of each column the attribute with its value and what encodes that."""
    fields = [
        field for field in model._meta.concrete_fields if not isinstance(field, models.AutoField)
    ]
    names = ", ".join(f'"{field.column}"' for field in fields)
    encoders: list[Encode | None] = [
        partial(_json, encoder=field.encoder) if isinstance(field, models.JSONField) else None
        for field in fields
    ]
    columns = [(field.attname, encode) for field, encode in zip(fields, encoders, strict=True)]
    return f'COPY "{model._meta.db_table}" ({names}) FROM STDIN', columns


def _json(value: Any, *, encoder: type[json.JSONEncoder] | None) -> str | None:
    return None if value is None else json.dumps(value, cls=encoder)
