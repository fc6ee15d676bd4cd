"""SQL that a process composes once, and that PostgreSQL parses and plans once for each session.

For a statement about one row, these steps take longer than its execution. On an idle installation
each statement runs from cold caches, where every step counts several times as much.

SQLite executes them, too, as far as it knows their words.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Any, Generic, TypeVar
from uuid import UUID

import psycopg
from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, NotSupportedError, connections, models

M = TypeVar("M", bound=models.Model)

PLACEHOLDER = re.compile(r"%\((\w+)\)s")
UNNESTED = re.compile(r"unnest\(%\((\w+)\)s")

ESCAPES = str.maketrans({'"': '\\"', "\\": "\\\\"})
"""In an element of an array."""

PLANNED_AFTER = 1_000
"""A plan is used for so many rows: those that its lists name, or one at each use. A plan that was
made while a table was small reads the whole table, which grows with them."""

LEAST_USES = 20
"""A plan is used at least so often: PostgreSQL plans the first five uses each for its values."""

MOST_PREPARED = 20
"""The statements that a session keeps prepared: those that it used last."""


class Statement:
    """A statement with a `%(name)s` for each of its parameters.

    `lists`: those that list the rows that it is for; what it unnests lists them, too.
    """

    def __init__(self, sql: str, *, lists: Collection[str] = ()) -> None:
        self.names = tuple(dict.fromkeys(PLACEHOLDER.findall(sql)))
        numbers = {name: f"${number}" for number, name in enumerate(self.names, 1)}
        self.sql = " ".join(PLACEHOLDER.sub(lambda found: numbers[found[1]], sql).split())
        texts, self._each_name = PLACEHOLDER.split(sql)[::2], PLACEHOLDER.findall(sql)
        self._for_sqlite = "%s".join(text.replace("%", "%%") for text in texts)
        self._lists = [*UNNESTED.findall(sql), *lists]
        self._plan = self._uses = self._rows = 0

    def execute(
        self, values: Mapping[str, Any], *, using: str = DEFAULT_DB_ALIAS
    ) -> list[tuple[Any, ...]]:
        """Execute it with these values; returns its rows."""
        connection: Any = connections[using]  # the stubs lack a part of it
        rows: list[tuple[Any, ...]]
        if connection.vendor != "postgresql":
            with connection.cursor() as cursor:
                cursor.execute(self._for_sqlite, [values[name] for name in self._each_name])
                rows = cursor.fetchall()
                return rows
        connection.close_if_health_check_failed()
        connection.ensure_connection()
        link: psycopg.Connection[Any] = connection.connection
        # only here: for all other statements, the driver would keep their texts to count them
        link.prepare_threshold = 0 if settings.MUSTER.database_prepares else None
        link.prepared_max = MOST_PREPARED
        try:
            # Django's cursor, but the parameters travel beside the statement
            with connection._prepare_cursor(psycopg.RawCursor(link)) as cursor:
                cursor.execute(
                    self._text(values), [_parameter(values[name]) for name in self.names]
                )
                rows = cursor.fetchall()
                return rows
        except NotSupportedError:
            self._renew()  # a migration has changed a column since it was planned
            raise
        finally:
            link.prepare_threshold = None

    def _text(self, values: Mapping[str, Any]) -> str:
        """The SQL; after so many rows it is another text, and so it is planned again."""
        self._uses += 1
        self._rows += max((len(values[name]) for name in self._lists), default=1)
        if self._rows > PLANNED_AFTER and self._uses > LEAST_USES:
            self._renew()
        return f"{self.sql} -- {self._plan}"

    def _renew(self) -> None:
        self._plan += 1
        self._uses = self._rows = 0


def _parameter(value: Any) -> Any:
    """The value as the driver gets it. A list, of texts, ids, numbers or times, goes as the text of
    an array: the driver would look for their type each time, and write each in Python."""
    return f"{{{','.join(map(_element, value))}}}" if isinstance(value, list) else value


def _element(value: str | UUID | int | datetime | None) -> str:
    return "NULL" if value is None else f'"{str(value).translate(ESCAPES)}"'


def off_disk() -> str:
    """A condition that is true, and has its statement, if that is a transaction of its own, not
    wait for the disk. For what a server that loses its power may forget."""
    connection = connections[DEFAULT_DB_ALIAS]
    if connection.vendor == "postgresql" and not connection.in_atomic_block:
        return "set_config('synchronous_commit', 'off', true) = 'off'"
    return "TRUE"


def type_of(field: Any) -> str:
    """PostgreSQL's type of a column, without its length: a cast would cut what is too long."""
    return str(field.db_type(connections[DEFAULT_DB_ALIAS])).split("(")[0]


def column_parameters(model: type[models.Model]) -> dict[str, str]:
    """The parameter for each column of a new row of the model, with its type."""
    return {
        str(field.column): f"%(new_{field.column})s::{type_of(field)}"
        for field in model._meta.concrete_fields
    }


def column_values(row: models.Model) -> dict[str, Any]:
    """The values of those parameters for a row."""
    values = {}
    for field in row._meta.concrete_fields:
        value = getattr(row, field.attname)
        is_document = isinstance(field, models.JSONField) and value is not None
        values[f"new_{field.column}"] = json.dumps(value) if is_document else value
    return values


class Rows(Generic[M]):
    """Rows of a model, without some of its fields, of what a statement returns."""

    def __init__(self, model: type[M], *, without: Collection[str] = ()) -> None:
        fields = [field for field in model._meta.concrete_fields if field.name not in without]
        self.columns = tuple(str(field.column) for field in fields)
        self._model = model
        self._names = [field.attname for field in fields]
        # Django's connections read them as text
        self._documents = [
            place for place, field in enumerate(fields) if isinstance(field, models.JSONField)
        ]

    def read(self, fetched: Iterable[tuple[Any, ...]], *, using: str) -> list[M]:
        """The rows whose columns a statement returned, in the order of `columns`."""
        return [self._model.from_db(using, self._names, self._decoded(row)) for row in fetched]

    def _decoded(self, row: tuple[Any, ...]) -> list[Any]:
        values = list(row)
        for place in self._documents:
            if values[place] is not None:
                values[place] = json.loads(values[place])
        return values
