"""Triggers that protect final rows and history against every change, and what may remove them.

A later migration that changes such rows removes the triggers for that time. On SQLite, where
altering a table may rebuild it, it creates them again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from django.db import connections, migrations, models

FUNCTION = "orchestrator_is_final"
HISTORY = "history is final"
PRUNING = "orchestrator_pruning"
"""A table that is empty but for a session that prunes: there, it has a row."""
NOT_NOW = f"NOT EXISTS (SELECT 1 FROM {PRUNING})"  # noqa: S608 - our own table


def function() -> migrations.RunPython:
    """Create the function of PostgreSQL that the triggers of all apps call."""
    return _statements(postgresql=[_function()], undone_postgresql=[f"DROP FUNCTION {FUNCTION}()"])


def _function(unless: str = "") -> str:
    return f"""
        CREATE OR REPLACE FUNCTION {FUNCTION}() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            {unless}
            RAISE EXCEPTION '% of % refused%: %', TG_OP, TG_TABLE_NAME,
                CASE WHEN TG_LEVEL = 'ROW' THEN ', row ' || OLD.id ELSE '' END, TG_ARGV[0]
                USING ERRCODE = 'integrity_constraint_violation';
        END $$
    """


def keep(
    ended: Mapping[str, tuple[str, Collection[str]]], *, histories: Collection[str]
) -> migrations.RunPython:
    """Refuse every change of rows that are final, and of histories.

    `ended`: for each table, the column that holds the state, and its terminal states; none if the
    row is final once that column is set. Depends on the migration with `function`.
    """
    finals = _finals(ended, histories)
    return _statements(
        postgresql=[
            sql for table, final in finals.items() for sql in _on_postgresql(table, *final)
        ],
        undone_postgresql=[
            f"DROP TRIGGER {table}_{what} ON {table}"
            for table in finals
            for what in ("is_final", "is_kept")
        ],
        sqlite=[sql for table, how in finals.items() for sql in _on_sqlite(table, *how)],
        undone_sqlite=[
            f"DROP TRIGGER IF EXISTS {table}_{verb}_is_final"
            for table in finals
            for verb in ("update", "delete")
        ],
    )


def _finals(
    ended: Mapping[str, tuple[str, Collection[str]]], histories: Collection[str]
) -> dict[str, tuple[str, str]]:
    """By table: the condition for rows that are final, empty for all, and why they are."""
    rows = {
        table: (
            f"OLD.{column} IN ({_quoted(states)})" if states else f"OLD.{column} IS NOT NULL",
            f"a terminal {column} is final",
        )
        for table, (column, states) in ended.items()
    }
    return {**rows, **dict.fromkeys(histories, ("", HISTORY))}


def _on_postgresql(table: str, condition: str, why: str) -> Iterator[str]:
    """`condition`: which rows are final; empty for all."""
    yield f"""
        CREATE TRIGGER {table}_is_final BEFORE UPDATE OR DELETE ON {table}
        FOR EACH ROW {f"WHEN ({condition})" if condition else ""}
        EXECUTE FUNCTION {FUNCTION}('{why}')
    """
    yield f"""
        CREATE TRIGGER {table}_is_kept BEFORE TRUNCATE ON {table}
        FOR EACH STATEMENT EXECUTE FUNCTION {FUNCTION}('{HISTORY}')
    """


def _on_sqlite(table: str, condition: str, why: str) -> Iterator[str]:
    yield _trigger(table, "UPDATE", condition, why)
    yield _trigger(table, "DELETE", condition, why)


def _again(table: str, condition: str, why: str, also: str = "") -> Iterator[str]:
    """Create the trigger on DELETE again, with one more condition."""
    yield f"DROP TRIGGER {table}_delete_is_final"
    yield _trigger(table, "DELETE", " AND ".join(filter(None, (condition, also))), why)


def _trigger(table: str, verb: str, condition: str, why: str) -> str:
    return f"""
        CREATE TRIGGER {table}_{verb.lower()}_is_final BEFORE {verb} ON {table}
        FOR EACH ROW {f"WHEN {condition}" if condition else ""}
        BEGIN
            SELECT RAISE(ABORT, '{verb} of {table} refused: {why}');
        END
    """


def let_old_rows_go(
    ended: Mapping[str, tuple[str, Collection[str]]], *, histories: Collection[str]
) -> migrations.RunPython:
    """Let final rows of these tables be removed inside of `pruning`; the arguments are those of
    `keep`. On PostgreSQL nothing is to do: `function_that_lets_go` is for all tables."""
    finals = _finals(ended, histories)
    return _statements(
        postgresql=[],
        undone_postgresql=[],
        sqlite=[sql for table, final in finals.items() for sql in _again(table, *final, NOT_NOW)],
        undone_sqlite=[sql for table, final in finals.items() for sql in _again(table, *final)],
    )


def keep_again(ended: Mapping[str, tuple[str, Collection[str]]]) -> migrations.RunPython:
    """Create the triggers of these tables again on SQLite, after an operation that rebuilt them."""
    sqlite = []
    for table, final in _finals(ended, ()).items():
        sqlite += [
            f"DROP TRIGGER IF EXISTS {table}_{verb}_is_final" for verb in ("update", "delete")
        ]
        sqlite += [*_on_sqlite(table, *final), *_again(table, *final, NOT_NOW)]
    return _statements(postgresql=[], undone_postgresql=[], sqlite=sqlite, undone_sqlite=sqlite)


def function_that_lets_go() -> migrations.RunPython:
    """Replace the function of PostgreSQL by one that lets rows be removed inside of `pruning`, by
    those who have the right to."""
    return _statements(
        postgresql=[
            _function(
                f"""
                IF TG_OP = 'DELETE' AND EXISTS (SELECT FROM {PRUNING}) THEN
                    RETURN OLD;
                END IF;
                """
            )
        ],
        undone_postgresql=[_function()],
    )


@contextmanager
def pruning(using: str = "default") -> Iterator[None]:
    """Let final rows be removed inside of the context, and of the caller's transaction.

    The row that says so is never committed, so no other session sees it.
    """
    with connections[using].cursor() as cursor:
        cursor.execute(f"INSERT INTO {PRUNING} DEFAULT VALUES")
        yield
        cursor.execute(f"DELETE FROM {PRUNING}")  # noqa: S608 - our own table


@contextmanager
def lifted(connection: Any, histories: Collection[type[models.Model]]) -> Iterator[None]:
    """Allow changes of these histories inside of the context, and of the caller's transaction.

    Only the owner of the tables may do this.
    """
    tables = [model._meta.db_table for model in histories]
    is_postgresql = connection.vendor == "postgresql"
    with connection.cursor() as cursor:
        for table in tables:
            for statement in _lift(table, is_postgresql):
                cursor.execute(statement)
        yield
        for table in tables:
            for statement in _restore(table, is_postgresql):
                cursor.execute(statement)


def _lift(table: str, is_postgresql: bool) -> list[str]:
    if is_postgresql:
        return [f"ALTER TABLE {table} DISABLE TRIGGER {table}_is_final"]
    return [f"DROP TRIGGER {table}_{verb}_is_final" for verb in ("update", "delete")]


def _restore(table: str, is_postgresql: bool) -> list[str]:
    if is_postgresql:
        return [f"ALTER TABLE {table} ENABLE TRIGGER {table}_is_final"]
    return list(_on_sqlite(table, "", HISTORY))


def tune(tables: Mapping[str, str]) -> migrations.RunPython:
    """Set PostgreSQL's storage parameters of tables; SQLite has none."""
    return _statements(
        postgresql=[f"ALTER TABLE {table} SET ({values})" for table, values in tables.items()],
        undone_postgresql=[
            f"ALTER TABLE {table} RESET (fillfactor, autovacuum_analyze_scale_factor)"
            for table in tables
        ],
    )


def _statements(
    *,
    postgresql: Collection[str],
    undone_postgresql: Collection[str],
    sqlite: Collection[str] = (),
    undone_sqlite: Collection[str] = (),
) -> migrations.RunPython:
    def run(schema_editor: Any, on_postgresql: Collection[str], on_sqlite: Collection[str]) -> None:
        is_postgresql = schema_editor.connection.vendor == "postgresql"
        for statement in on_postgresql if is_postgresql else on_sqlite:
            # None, not the default (): a `%` of PL/pgSQL is no placeholder
            schema_editor.execute(statement, params=None)

    return migrations.RunPython(
        lambda apps, schema_editor: run(schema_editor, postgresql, sqlite),
        lambda apps, schema_editor: run(schema_editor, undone_postgresql, undone_sqlite),
    )


def _quoted(states: Collection[str]) -> str:
    return ", ".join(f"'{state}'" for state in states)
