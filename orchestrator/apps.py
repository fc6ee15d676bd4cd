"""The Django application, and the admin's, which is found when its URLs are."""

import sqlite3
from typing import Any

from django.apps import AppConfig
from django.contrib.admin import apps as admin_apps
from django.contrib.admin import autodiscover
from django.contrib.admin.checks import check_admin_app, check_dependencies
from django.core import checks as django_checks
from django.db.backends.signals import connection_created
from django.db.models.signals import post_migrate, pre_migrate


class OrchestratorConfig(AppConfig):
    name = "orchestrator"
    verbose_name = "Muster"
    default_auto_field = "django.db.models.BigAutoField"
    default = True

    def ready(self) -> None:
        from orchestrator import checks, database  # noqa: F401 - registers them
        from orchestrator.models import view_definitions

        connection_created.connect(_allow_all_parameters)
        connection_created.connect(database.leave_read_only_sessions)
        pre_migrate.connect(view_definitions.drop, sender=self)
        post_migrate.connect(view_definitions.make, sender=self)


class AdminConfig(admin_apps.SimpleAdminConfig):
    """Discovers no admin at start: `settings.urls` does, and no service but the API loads that."""

    default_site = "unfold.sites.UnfoldAdminSite"

    def ready(self) -> None:
        django_checks.register(check_dependencies, django_checks.Tags.admin)
        django_checks.register(_check_admin, django_checks.Tags.admin)


def _check_admin(app_configs: Any, **options: Any) -> Any:
    autodiscover()
    return check_admin_app(app_configs, **options)


def _allow_all_parameters(connection: Any, **_: Any) -> None:
    """As many in one statement as this SQLite takes: Django 5.2 counts on 999 whatever it is."""
    if connection.vendor == "sqlite":
        limit = connection.connection.getlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER)
        connection.features.max_query_params = limit
