"""Databases with committed rows, for tests of transactions, threads and PostgreSQL.

Most tests take pytest-django's `db`: SQLite in memory, rolled back after each test. That hides
what commits, runs `on_commit` of nothing, shares one connection among threads, and is never
PostgreSQL. Tests that take `database` (see conftest.py) run twice instead, on an SQLite file and
on PostgreSQL, each time on a migrated database of which nobody else has rows.

It takes the place of Django's `default`, so that everything runs on it as it does in an
installation: models, `clock.now()`, and connections that other threads open.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import environ
import psycopg
from django.contrib.contenttypes.models import ContentType
from django.core.management import call_command
from django.db import connection, connections

from orchestrator.core import frame
from orchestrator.core.models import HistoryMark
from orchestrator.core.models.catalog import forget_actions
from orchestrator.rollups.models import Mark
from orchestrator.workflows.models import StalenessDefault
from tests import once

Config = dict[str, Any]
Lender = Callable[[], contextlib.AbstractContextManager[Config]]
"""Lends a migrated database without rows of ours, for the length of a block."""


@contextlib.contextmanager
def as_default(config: Config) -> Iterator[None]:
    """Django's `default` is this database inside the block, in every thread that begins in it."""
    kept, kept_config = connections["default"], connections.settings["default"]
    connections.settings.update(connections.configure_settings({"default": config}))
    del connections["default"]
    _forget()
    try:
        yield
    finally:
        connections["default"].close()
        connections.settings["default"], connections["default"] = kept_config, kept
        _forget()


@contextlib.contextmanager
def sqlite_lender(directory: Path) -> Iterator[Lender]:
    """Migrate one file, and lend copies of it."""
    # the options of the installation, with its locking and WAL
    base = connections.settings["default"] | {"TEST": {}}
    template = directory / "template.db"
    with once.shared("migrated, SQLite") as kept:
        if kept is None or not kept[1]:
            _migrate(base | {"NAME": str(template)})
        if kept is not None:
            made = kept[0] / template.name
            shutil.copyfile(*((made, template) if kept[1] else (template, made)))

    @contextlib.contextmanager
    def lend() -> Iterator[Config]:
        path = directory / f"{uuid.uuid4().hex}.db"
        shutil.copyfile(template, path)
        try:
            yield base | {"NAME": str(path)}
        finally:
            for suffix in ("", "-wal", "-shm"):
                path.with_name(path.name + suffix).unlink(missing_ok=True)

    yield lend


@contextlib.contextmanager
def postgresql_lender(url: str) -> Iterator[Lender]:
    """Migrate a database on this server, lend it, and empty it again: that is faster there."""
    base: Config = dict(environ.Env.db_url_config(url))
    name = f"muster_test_{os.getpid()}_{uuid.uuid4().hex[:8]}"

    def execute(statement: str) -> None:
        with psycopg.connect(url, autocommit=True) as server:
            server.execute(statement.encode())

    @contextlib.contextmanager
    def lend() -> Iterator[Config]:
        yield base | {"NAME": name}
        with as_default(base | {"NAME": name}), connection.cursor() as cursor:
            tables = [
                model._meta.db_table
                for app in frame.ours()
                for model in app.get_models()
                if model._meta.managed and model not in MADE_BY_MIGRATIONS
            ]
            # foreign keys would want an order, and there is nothing for them to check
            cursor.execute("SET session_replication_role = replica")
            cursor.execute("".join(f"DELETE FROM {table};" for table in tables))  # noqa: S608 - ours

    execute(f"CREATE DATABASE {name}")
    try:
        with once.shared("migrated, PostgreSQL") as kept:
            own = url.rpartition("/")[0] + f"/{name}"
            if kept is not None and kept[1]:
                once.load(own, kept[0] / "database.sql")
            else:
                _migrate(base | {"NAME": name})
            if kept is not None and not kept[1]:
                once.dump(own, kept[0] / "database.sql")
        yield lend
    finally:
        # FORCE: a thread of a test that failed may still be connected
        execute(f"DROP DATABASE {name} WITH (FORCE)")


MADE_BY_MIGRATIONS = (StalenessDefault, HistoryMark, Mark)
"""Models with rows that are not a test's own."""


def _forget() -> None:
    """What was read from one database is not true of another, though ids be the same."""
    ContentType.objects.clear_cache()
    forget_actions()


def _migrate(config: Config) -> None:
    with as_default(config):
        call_command("migrate", verbosity=0)
