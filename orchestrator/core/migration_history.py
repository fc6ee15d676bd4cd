"""Refuse to migrate a database that another version of Muster has migrated."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError
from django.db import connections
from django.db.migrations.loader import MigrationLoader

from orchestrator.core import frame

NAMED_LIMIT = 3


class UnknownMigrations(CommandError):
    """The database has migrations that this version does not know."""


def require_known(*, using: str, **_: Any) -> None:
    """Before migrations: whatever ran of our apps is known here.

    Django takes a migration for applied by its name alone, so tables of another version would be
    taken for ours and fail at the first query. Raises UnknownMigrations before anything is changed.
    """
    loader = MigrationLoader(connections[using])
    labels = {app.label for app in frame.ours()}
    unknown = sorted(
        f"{label}.{name}"
        for label, name in loader.applied_migrations.keys() - loader.disk_migrations.keys()
        if label in labels
    )
    if not unknown:
        return
    more = len(unknown) - NAMED_LIMIT
    named = ", ".join(unknown[:NAMED_LIMIT]) + (f" and {more} more" if more > 0 else "")
    raise UnknownMigrations(
        f"The database {connections[using].settings_dict['NAME']} was made by another version of "
        f"Muster: it has {named}, which this version does not know. Nothing was changed. "
        "Use that version, or start with an empty database: set MUSTER_DATA_DIR or DATABASE_URL."
    )
