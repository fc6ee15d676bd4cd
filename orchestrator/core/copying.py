"""Many new rows at once.

On PostgreSQL with COPY: 250 executions take 8 ms instead of 29, and a seventh of the processor time
here, as values are neither quoted nor parsed as SQL. One alone is inserted by a statement that is
composed once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

from django.db import connection, models

from orchestrator.core import database
from orchestrator.core.statements import Statement, column_parameters, column_values

Encode = Callable[[Any], Any]


def insert_many(rows: Sequence[models.Model]) -> None:
    """Insert these rows of one model, which have all their values: what the database would fill in
    is not read back, and that includes the ids that it gives to more than one.

    Raises IntegrityError if a key is taken; then it has inserted nothing.
    """
    if not rows:
        return
    model = type(rows[0])
    if connection.vendor != "postgresql":
        model._default_manager.bulk_create(rows)
        return
    if len(rows) == 1:
        ((rows[0].pk,),) = _insertion(model).execute(column_values(rows[0]))
        rows[0]._state.adding, rows[0]._state.db = False, connection.alias
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
def _insertion(model: type[models.Model]) -> Statement:
    types, key = column_parameters(model), model._meta.pk
    values = {f'"{field.column}"': types[str(field.column)] for field in _fields(model)}
    return Statement(
        f'INSERT INTO "{model._meta.db_table}" ({", ".join(values)}) '  # noqa: S608 - our own model
        f'VALUES ({", ".join(values.values())}) RETURNING "{key.column}"'
    )


@cache
def _plan(model: type[models.Model]) -> tuple[str, list[tuple[str, Encode | None]]]:
    """The statement, and of each column the attribute with its value and what encodes that."""
    fields = _fields(model)
    names = ", ".join(f'"{field.column}"' for field in fields)
    encoders: list[Encode | None] = [
        partial(_json, encoder=field.encoder) if isinstance(field, models.JSONField) else None
        for field in fields
    ]
    columns = [(field.attname, encode) for field, encode in zip(fields, encoders, strict=True)]
    return f'COPY "{model._meta.db_table}" ({names}) FROM STDIN', columns


def _fields(model: type[models.Model]) -> list[Any]:
    """Those that the database does not fill in."""
    return [
        field for field in model._meta.concrete_fields if not isinstance(field, models.AutoField)
    ]


def _json(value: Any, *, encoder: type[json.JSONEncoder] | None) -> str | None:
    return None if value is None else json.dumps(value, cls=encoder)
