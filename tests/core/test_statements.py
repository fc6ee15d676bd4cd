"""Statements that are composed once, and prepared by PostgreSQL."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import DataError, NotSupportedError, connection

from orchestrator.core import statements
from orchestrator.core.models import Execution
from orchestrator.core.statements import Rows, Statement
from tests.factories import NOW, make_execution

pytestmark = [
    pytest.mark.parametrize("database", ["postgresql"], indirect=True),
    pytest.mark.usefixtures("database"),
]


def prepared(mark: str) -> list[str]:
    """What this session keeps prepared, of the statements with this mark."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT statement FROM pg_prepared_statements WHERE strpos(statement, %s) > 0", [mark]
        )
        return [text for (text,) in cursor.fetchall()]


def test_values_go_to_their_names_each_as_often_as_it_is_named() -> None:
    statement = Statement("SELECT %(b)s::int, %(a)s::text, %(b)s::int + 1")

    assert statement.execute({"a": "x", "b": 4, "unused": None}) == [(4, "x", 5)]


def test_statement_is_prepared_once_and_planned_again_after_so_many_uses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(statements, "PLANNED_AFTER", 2)
    monkeypatch.setattr(statements, "LEAST_USES", 0)
    statement = Statement("SELECT %(n)s::int AS planned_again")

    assert [statement.execute({"n": n}) for n in (7, 8)] == [[(7,)], [(8,)]]
    assert len(prepared("planned_again")) == 1
    statement.execute({"n": 9})
    assert len(prepared("planned_again")) == 2


def test_statement_is_planned_again_after_so_many_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statements, "PLANNED_AFTER", 4)
    monkeypatch.setattr(statements, "LEAST_USES", 2)
    statement = Statement(
        "SELECT unnest(%(ns)s::int[]) AS planned_for_rows WHERE 1 = ANY(%(all)s::int[])"
    )

    def plans(*sizes: int) -> int:
        for size in sizes:
            values = {"ns": list(range(size)), "all": [1] * 100}
            assert statement.execute(values) == [(n,) for n in range(size)]
        return len(prepared("planned_for_rows"))

    assert plans(100, 100) == 1  # used too seldom
    assert plans(1) == 2
    assert plans(1, 1, 2) == 2
    assert plans(1) == 3


def test_statement_is_planned_again_after_so_many_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statements, "PLANNED_AFTER", 4)
    monkeypatch.setattr(statements, "LEAST_USES", 2)
    statement = Statement("SELECT 'planned_for_ids' WHERE 1 = ANY(%(ids)s)", lists=["ids"])
    for size in (1, 3, 1):
        statement.execute({"ids": [1] * size})
    assert len(prepared("planned_for_ids")) == 2


def test_plan_that_a_migration_made_useless_is_renewed_at_its_first_error() -> None:
    with connection.cursor() as cursor:
        cursor.execute("CREATE TEMPORARY TABLE changed (a varchar(5))")
        cursor.execute("INSERT INTO changed VALUES ('x')")
    statement = Statement("SELECT a FROM changed WHERE a = %(a)s")
    assert statement.execute({"a": "x"}) == [("x",)]
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE changed ALTER a TYPE varchar(9)")

    with pytest.raises(NotSupportedError, match="cached plan"):
        statement.execute({"a": "x"})
    assert statement.execute({"a": "x"}) == [("x",)]


def test_session_keeps_only_the_statements_that_it_used_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(statements, "MOST_PREPARED", 3)
    monkeypatch.setattr(statements, "PLANNED_AFTER", 0)
    monkeypatch.setattr(statements, "LEAST_USES", 0)
    statement = Statement("SELECT %(n)s::int AS used_last")

    for n in range(6):
        statement.execute({"n": n})

    assert sorted(text[-1] for text in prepared("used_last")) == ["4", "5", "6"]


def test_nothing_is_prepared_if_the_settings_say_so(settings: Any) -> None:
    settings.MUSTER = replace(settings.MUSTER, database_prepares=False)

    assert Statement("SELECT %(n)s::int AS unprepared").execute({"n": 7}) == [(7,)]
    assert prepared("unprepared") == []


def test_statements_of_django_are_not_counted_afterwards() -> None:
    Statement("SELECT %(n)s::int").execute({"n": 7})

    assert connection.connection.prepare_threshold is None


def test_errors_are_those_of_django() -> None:
    with pytest.raises(DataError):
        Statement("SELECT 1 / %(n)s::int").execute({"n": 0})


def test_rows_are_those_of_the_model_without_some_of_its_fields() -> None:
    made = make_execution(parameters={"nested": [1, {"a": None}]}, worker_selector=None)
    rows = Rows(Execution, without=["result"])
    columns = ", ".join(rows.columns)
    statement = Statement(f"SELECT {columns} FROM orchestrator_execution WHERE id = %(id)s")  # noqa: S608

    (read,) = rows.read(statement.execute({"id": made.pk}), using="default")

    whole = Execution.objects.get(pk=made.pk)
    assert read.get_deferred_fields() == {"result"}
    for field in Execution._meta.concrete_fields:
        assert getattr(read, field.attname) == getattr(whole, field.attname), field.name


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("text", ["plain", "", "NULL", 'a "quote"', "back\\slash", "{a, b}", " é\n", None]),
        ("uuid", [UUID(int=1), None, UUID(int=2**128 - 1)]),
        ("bigint", [0, -1, 2**63 - 1, None]),
        ("timestamptz", [NOW, None, NOW + timedelta(microseconds=1)]),
        ("int", []),
    ],
)
def test_a_list_arrives_as_an_array(kind: str, values: list[Any]) -> None:
    statement = Statement(f"SELECT %(values)s::{kind}[]")

    assert statement.execute({"values": values}) == [(values,)]
