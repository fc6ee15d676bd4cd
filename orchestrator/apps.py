"""The Django application."""

import sqlite3
from typing import Any

from django.apps import AppConfig
from django.db.backends.signals import connection_created
from django.db.models.signals import post_migrate, pre_migrate


class OrchestratorConfig(AppConfig):
    name = "orchestrator"
    verbose_name = "Muster"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from orchestrator import checks  # noqa: F401 - registers them
        from orchestrator.models import view_definitions

        connection_created.connect(_allow_all_parameters)
        pre_migrate.connect(view_definitions.drop, sender=self)
        post_migrate.connect(view_definitions.make, sender=self)


def _allow_all_parameters(connection: Any, **_: Any) -> None:
    """As many in one statement as this SQLite takes: Django 5.2 counts on 999 whatever it is."""
    if connection.vendor == "sqlite":
        limit = connection.connection.getlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER)
        connection.features.max_query_params = limit
