"""Queries that are composed once, and that PostgreSQL plans once for each session.

Django composes the SQL of a queryset again each time it is asked. For a row by its id that takes
several times as long as the query itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from inspect import signature
from typing import Any, Generic, ParamSpec, TypeVar
from uuid import UUID

from django.db import connections
from django.db.models import DateTimeField, Field, QuerySet, UUIDField
from django.db.models import query as django_query

from orchestrator.core.statements import Statement

P = ParamSpec("P")
Row = TypeVar("Row")
Id = UUID | str | int
Value = Id | datetime

_FIELDS: dict[type, Field[Any, Any]] = {UUID: UUIDField(), datetime: DateTimeField()}
"""The fields as which databases without such a type store these."""

STAND_IN = UUID("57a9d19e-0000-7000-8000-000000000000")
"""Any id, to see where it stands among the parameters of a query."""

STAND_IN_TIME = datetime(1970, 1, 1, tzinfo=UTC)
"""Any time, for the same."""

OF_ONE, OF_SEVERAL = "IN (%(v0)s)", "= ANY(%(v0)s)"
"""The comparison with a list of one id, as Django writes it, and that with a list of any length."""


class Prepared(Generic[P, Row]):
    """A queryset that depends on nothing but some values: `Prepared(build)(id)` is
    `list(build(id))`. If they are not one UUID, `stand_ins` are values that stand nowhere else in
    the query.

    `build` is called once for each kind of database. It may follow foreign keys (`select_related`),
    leave out columns, or ask for tuples (`values_list`); annotations are not supported.
    """

    def __init__(self, build: Callable[P, QuerySet[Any, Row]], *stand_ins: Value) -> None:
        self._build: Callable[..., QuerySet[Any, Row]] = build
        self._stand_ins = stand_ins or (STAND_IN,) * len(signature(build).parameters)
        self._composed: dict[str, _Composed] = {}

    def __call__(self, *values: P.args, **_: P.kwargs) -> list[Row]:
        connection = connections["default"]
        composed = self._composed.get(connection.vendor)
        if composed is None:
            queryset = self._build(*self._stand_ins)
            composed = _Composed(queryset, self._stand_ins, connection)
            self._composed[connection.vendor] = composed
        return composed.rows([_as_parameter(value, connection) for value in values], connection)


class PreparedForIds(Generic[Row]):
    """A queryset about ids: `PreparedForIds(build)(ids)` is `list(build(ids))`, composed once: on
    PostgreSQL for any number of ids, elsewhere for one alone. `stand_in` as for `Prepared`."""

    def __init__(
        self, build: Callable[[Sequence[Any]], QuerySet[Any, Row]], stand_in: Id = STAND_IN
    ) -> None:
        self._build, self._stand_in = build, stand_in
        self._one = Prepared(lambda id: build([id]), stand_in)
        self._listed: _Composed | None = None

    def __call__(self, ids: Collection[Id]) -> list[Row]:
        if not ids:  # Django would compose the query before it finds that it has no row
            return []
        connection = connections["default"]
        if connection.vendor != "postgresql":
            return self._one(*ids) if len(ids) == 1 else list(self._build(list(ids)))
        if self._listed is None:
            queryset = self._build([self._stand_in])
            self._listed = _Composed(queryset, [self._stand_in], connection, is_listed=True)
        return self._listed.rows([list(ids)], connection)


class _Composed:
    """The statement that Django makes of a queryset for one kind of database, before it runs it.

    `is_listed`: the queryset is about a list of one stand-in, and the value is a list of any
    length.
    """

    def __init__(
        self, queryset: Any, stand_ins: Sequence[Value], connection: Any, *, is_listed: bool = False
    ) -> None:
        compiler: Any = queryset.query.get_compiler(connection=connection)
        sql, parameters = compiler.as_sql()
        values = {_as_parameter(value, connection): f"v{n}" for n, value in enumerate(stand_ins)}
        assert len(values) == len(stand_ins), "two values have the same stand-in"
        names = [values.get(parameter, f"p{n}") for n, parameter in enumerate(parameters)]
        assert set(values.values()) <= set(names), f"the query does not ask for its value: {sql}"
        sql %= tuple(f"%({name})s" for name in names)
        if is_listed:
            assert OF_ONE in sql, f"the query has no list of one id: {sql}"
            sql = sql.replace(OF_ONE, OF_SEVERAL)
        self._statement = Statement(sql, lists=["v0"] if is_listed else [])
        self._constants = dict(zip(names, parameters, strict=True))
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

    def rows(self, values: Iterable[Any], connection: Any) -> list[Any]:
        parameters = self._constants | {f"v{number}": value for number, value in enumerate(values)}
        return list(self._read(self._statement.execute(parameters), connection))

    def _read(self, fetched: Iterable[Any], connection: Any) -> Iterator[Any]:
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


def _as_parameter(value: object, connection: Any) -> Any:
    field = _FIELDS.get(type(value))
    return value if field is None else field.get_db_prep_value(value, connection)
