"""Queries that are composed once, and that PostgreSQL plans once for each session.

Django composes the SQL of a queryset anew each time it is asked. For a row by its id that takes
several times as long as the query itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar
from uuid import UUID

from django.db import connections
from django.db.models import QuerySet, UUIDField
from django.db.models import query as django_query

from orchestrator.core.statements import Statement

Row = TypeVar("Row")
Id = TypeVar("Id", UUID, str)

_IDS: UUIDField[Any, Any] = UUIDField()

STAND_IN = UUID("57a9d19e-0000-7000-8000-000000000000")
"""Any id, to see where it stands among the parameters of a query."""


class Prepared(Generic[Id, Row]):
    """A queryset that depends on nothing but an id: `Prepared(build)(id)` is `list(build(id))`.
    If that is a text, `stand_in` is one that stands nowhere else in the query.

    `build` is called once for each kind of database. It may follow foreign keys (`select_related`),
    leave out columns, or ask for tuples (`values_list`); annotations are not supported.
    """

    def __init__(
        self,
        build: Callable[[Id], QuerySet[Any, Row]],
        stand_in: Id = STAND_IN,  # type: ignore[assignment] # of a UUID unless it says otherwise
    ) -> None:
        self._build: Callable[[Id], QuerySet[Any, Row]] = build
        self._stand_in: Id = stand_in
        self._composed: dict[str, _Composed] = {}

    def __call__(self, id: Id) -> list[Row]:
        connection = connections["default"]
        composed = self._composed.get(connection.vendor)
        if composed is None:
            composed = _Composed(self._build(self._stand_in), self._stand_in, connection)
            self._composed[connection.vendor] = composed
        values = composed.constants | {"id": _as_parameter(id, connection)}
        return list(composed.rows(composed.statement.execute(values), connection))


class _Composed:
    """What Django makes of a queryset for one kind of database, before it runs it."""

    def __init__(self, queryset: Any, stand_in: UUID | str, connection: Any) -> None:
        compiler: Any = queryset.query.get_compiler(connection=connection)
        sql, parameters = compiler.as_sql()
        wanted = _as_parameter(stand_in, connection)
        names = ["id" if value == wanted else f"p{n}" for n, value in enumerate(parameters)]
        assert "id" in names, f"the query does not ask for its id: {sql}"
        self.statement = Statement(sql % tuple(f"%({name})s" for name in names))
        self.constants = dict(zip(names, parameters, strict=True))
        expressions = [column[0] for column in compiler.select]
        self.converters = list(compiler.get_converters(expressions).items())
        self.model: Any = None
        if queryset._fields is None:  # not `values_list`
            assert not compiler.annotation_col_map, "annotations are not supported"
            info = compiler.klass_info
            first, last = info["select_fields"][0], info["select_fields"][-1]
            self.model, self.own = info["model"], slice(first, last + 1)
            self.names = [each.target.attname for each in expressions[self.own]]
            populators: Any = django_query.get_related_populators
            self.related = populators(info, compiler.select, connection.alias)

    def rows(self, fetched: Iterable[Any], connection: Any) -> Iterator[Any]:
        for row in map(list, fetched):
            for position, (converters, expression) in self.converters:
                for convert in converters:
                    row[position] = convert(row[position], expression, connection)
            if self.model is None:
                yield tuple(row)
                continue
            found = self.model.from_db(connection.alias, self.names, row[self.own])
            for related in self.related:
                related.populate(row, found)
            yield found


def _as_parameter(id: UUID | str, connection: Any) -> Any:
    return id if isinstance(id, str) else _IDS.get_db_prep_value(id, connection)
