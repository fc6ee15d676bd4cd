"""Triggers that note changes of rare kinds: those of feeds with `columns`.

Each writes a row of the journal; on PostgreSQL it also notifies `muster_changed`, at whose commit
the server takes a lock over all databases. That is why no row of the hot path has such a trigger.
What is in the journal is found without the notification, too, only later.

They are dropped before a migration of ours, and created after the last one, as views are.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.apps import apps
from django.db import connections, transaction
from django.db.migrations.executor import MigrationExecutor

from orchestrator.core import frame
from orchestrator.core.frame import Feed
from orchestrator.notifications.models import Change

CHANNEL = "muster_changed"
FUNCTION = "notifications_note"
PREFIX = "notifications_tell"
KEPT = timedelta(hours=1)


def prune(*, now: datetime) -> dict[str, int]:
    """Remove what every listener has read long ago."""
    removed, _ = Change.objects.filter(at__lt=now - KEPT).delete()
    return {"removed": removed}


def drop(*, using: str, plan: Sequence[tuple[Any, bool]], **_: Any) -> None:
    """Drop the triggers before migrations, if any of ours are to run."""
    labels = {app.label for app in frame.ours()}
    if any(migration.app_label in labels for migration, _ in plan):
        _run(_dropped(using), using)


def make(*, using: str, **_: Any) -> None:
    """Create the triggers after migrations, if all of ours have run."""
    executor = MigrationExecutor(connections[using])
    graph = executor.loader.graph
    leaves = [leaf for app in frame.ours() for leaf in graph.leaf_nodes(app.label)]
    if executor.migration_plan(leaves):
        return
    wanted = {
        name: sql for feed in _feeds() for name, sql in _triggers(feed, connections[using].vendor)
    }
    if set(_existing(using)) == wanted.keys():
        return
    function = [_function(using)] if connections[using].vendor == "postgresql" else []
    _run([*_dropped(using), *function, *wanted.values()], using)


def _feeds() -> list[Feed]:
    return [feed for feed in frame.collect(lambda app: app.feeds) if feed.columns]


def _run(statements: Sequence[str], using: str) -> None:
    with transaction.atomic(using=using), connections[using].cursor() as cursor:
        for sql in statements:
            cursor.execute(sql)


_EXISTING = {
    "postgresql": "SELECT tgname, tgrelid::regclass::text FROM pg_trigger WHERE tgname LIKE %s",
    "sqlite": "SELECT name, tbl_name FROM sqlite_master WHERE type = 'trigger' AND name LIKE %s",
}


def _existing(using: str) -> dict[str, str]:
    """The table of each of our triggers, by its name."""
    with connections[using].cursor() as cursor:
        cursor.execute(_EXISTING[connections[using].vendor], [f"{PREFIX}%"])
        return dict(cursor.fetchall())


def _dropped(using: str) -> list[str]:
    on_table = connections[using].vendor == "postgresql"
    return [
        f"DROP TRIGGER {name}" + (f" ON {table}" if on_table else "")
        for name, table in _existing(using).items()
    ]


def _triggers(feed: Feed, vendor: str) -> Iterator[tuple[str, str]]:
    """The name and the SQL of the triggers on a feed's table: on INSERT and on UPDATE."""
    table = apps.get_model(feed.model)._meta.db_table
    differs, action = _ON[vendor]
    changed = " OR ".join(differs.format(column=column) for column in feed.columns)
    columns = ", ".join(feed.columns)
    for verb, when, condition in (
        ("created", "INSERT", ""),
        ("changed", f"UPDATE OF {columns}", f"WHEN ({changed})"),
    ):
        # the columns are in the name: whoever declares others gets another trigger
        name = f"{PREFIX}_{feed.entity}_{verb}_{zlib.crc32(columns.encode()):08x}"
        does = action.format(entity=feed.entity, verb=verb)
        yield name, f"CREATE TRIGGER {name} AFTER {when} ON {table} FOR EACH ROW {condition} {does}"


_ON = {
    "postgresql": (
        "OLD.{column} IS DISTINCT FROM NEW.{column}",
        f"EXECUTE FUNCTION {FUNCTION}('{{entity}}', '{{verb}}')",
    ),
    "sqlite": (
        "OLD.{column} IS NOT NEW.{column}",
        "BEGIN INSERT INTO notifications_change (entity, key, verb, at) VALUES ('{entity}', NEW.id,"
        " '{verb}', strftime('%Y-%m-%d %H:%M:%f', 'now')); END",
    ),
}


def _function(using: str) -> str:
    """Writes the journal with the rights of the owner, whoever changed the row."""
    with connections[using].cursor() as cursor:
        cursor.execute("SELECT quote_ident(current_schema())")
        (schema,) = cursor.fetchone()
    return f"""
        CREATE OR REPLACE FUNCTION {FUNCTION}() RETURNS trigger LANGUAGE plpgsql
        SECURITY DEFINER SET search_path = {schema}, pg_temp AS $$
        BEGIN
            INSERT INTO notifications_change (entity, key, verb, at)
            VALUES (TG_ARGV[0], NEW.id::text, TG_ARGV[1], clock_timestamp());
            PERFORM pg_notify('{CHANNEL}', TG_ARGV[0]);
            RETURN NULL;
        END $$
    """  # noqa: S608 - the only names are the schema's and ours
