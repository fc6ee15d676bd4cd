"""Creation and removal of the database views that apps bring.

Views hold no data, so migrations ignore them: all are dropped before one of ours runs, and created
again after the last one. Neither database lets a table be rebuilt under a view of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.db import connections, transaction
from django.db.migrations.executor import MigrationExecutor

from orchestrator.core import frame

MINUTES_SINCE: Mapping[str, str] = {
    "postgresql": "CAST(EXTRACT(EPOCH FROM now() - {}) / 60 AS double precision)",
    "sqlite": "((julianday('now') - julianday({})) * 1440)",
}
"""SQL for the minutes since a column's time, by vendor."""


def drop(*, using: str, plan: Sequence[tuple[Any, bool]], **_: Any) -> None:
    """Drop the views before migrations, if any of ours are to run."""
    labels = {app.label for app in frame.ours()}
    if any(migration.app_label in labels for migration, _ in plan):
        with transaction.atomic(using=using):
            _drop(using)


def make(*, using: str, **_: Any) -> None:
    """Create the views after migrations, if all of ours have run: earlier tables lack columns."""
    executor = MigrationExecutor(connections[using])
    graph = executor.loader.graph
    leaves = [leaf for app in frame.ours() for leaf in graph.leaf_nodes(app.label)]
    if executor.migration_plan(leaves):
        return
    with transaction.atomic(using=using):
        _drop(using)
        with connections[using].cursor() as cursor:
            for name, definition in _definitions(using).items():
                cursor.execute(f"CREATE VIEW {name} AS {definition}")


def _drop(using: str) -> None:
    with connections[using].cursor() as cursor:
        for name in reversed(_definitions(using)):
            cursor.execute(f"DROP VIEW IF EXISTS {name}")


def _definitions(using: str) -> dict[str, str]:
    """All views, each after those that it reads."""
    vendor = connections[using].vendor
    views: dict[str, str] = {}
    for definitions in frame.collect(lambda app: app.database_views):
        views |= definitions(vendor)
    return views
