"""Adding to sums in one statement, on each database alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from django.db import connections, models

AT_ONCE = 500
"""Rows of one statement: SQLite takes 32,766 values."""


class Sums(NamedTuple):
    """A table of sums: which columns identify a row, which are added to, and which keep the least
    or the greatest."""

    model: type[models.Model]
    keys: Sequence[str]
    added: Sequence[str]
    least: Sequence[str] = ()
    greatest: Sequence[str] = ()
    kept: Sequence[str] = ()
    """Columns of which the first value stays."""


def add(sums: Sums, rows: Sequence[Mapping[str, Any]]) -> None:
    """Add these rows, whose keys differ, to what is there; in the caller's transaction."""
    for start in range(0, len(rows), AT_ONCE):
        _add(sums, rows[start : start + AT_ONCE])


def _add(sums: Sums, rows: Sequence[Mapping[str, Any]]) -> None:
    connection = connections["default"]
    meta = sums.model._meta
    names = [*sums.keys, *sums.added, *sums.least, *sums.greatest, *sums.kept]
    fields = [meta.get_field(name) for name in names]
    quote = connection.ops.quote_name
    table = quote(meta.db_table)
    columns = {name: quote(str(field.column)) for name, field in zip(names, fields, strict=True)}  # type: ignore[union-attr]
    changes = [
        *(f"{columns[n]} = {table}.{columns[n]} + excluded.{columns[n]}" for n in sums.added),
        *(_chosen(table, columns[name], "<") for name in sums.least),
        *(_chosen(table, columns[name], ">") for name in sums.greatest),
    ]
    one = f"({', '.join(['%s'] * len(names))})"
    sql = f"""
        INSERT INTO {table} ({", ".join(columns.values())})
        VALUES {", ".join([one] * len(rows))}
        ON CONFLICT ({", ".join(columns[name] for name in sums.keys)})
        DO UPDATE SET {", ".join(changes)}
    """  # noqa: S608 - every interpolated name is a column of our own model
    values = [
        field.get_db_prep_save(row[name], connection)  # type: ignore[union-attr]
        for row in rows
        for name, field in zip(names, fields, strict=True)
    ]
    with connection.cursor() as cursor:
        cursor.execute(sql, values)


def _chosen(table: str, column: str, than: str) -> str:
    return (
        f"{column} = CASE WHEN excluded.{column} {than} {table}.{column} "
        f"THEN excluded.{column} ELSE {table}.{column} END"
    )
