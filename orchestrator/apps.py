"""The Django application, and the admin's, which is found when its URLs are."""

import sqlite3
from typing import Any

from django.contrib.admin import apps as admin_apps
from django.contrib.admin import autodiscover
from django.contrib.admin.checks import check_admin_app, check_dependencies
from django.core import checks as django_checks
from django.db.backends.signals import connection_created
from django.db.models.signals import post_migrate, pre_migrate

from orchestrator.frame import ExecutorPart, HotQueue, Maintenance, MusterApp, Named, PackContent


class OrchestratorConfig(MusterApp):
    name = "orchestrator"
    verbose_name = "Muster"
    default = True

    api_routers = (
        ("/executions", "orchestrator.api.executions.router"),
        ("/tasks", "orchestrator.api.tasks.router"),
        ("/tasks", "orchestrator.api.task_steps.router"),
        ("/templates", "orchestrator.api.templates.router"),
        ("/workers", "orchestrator.api.workers.router"),
        ("/dlq", "orchestrator.api.dlq.router"),
        ("/dlq", "orchestrator.api.dlq_reports.router"),
        ("/analytics", "orchestrator.api.analytics.router"),
        ("/actions", "orchestrator.api.actions.router"),
        ("/health", "orchestrator.api.health.router"),
    )
    maintenance = (
        Maintenance(
            "muster.check_timeouts",
            Named("orchestrator.maintenance.check_timeouts"),
            "Ends what is overdue and schedules what was never picked up.",
        ),
        Maintenance(
            "muster.check_heartbeats",
            Named("orchestrator.maintenance.check_heartbeats"),
            "Declares silent workers lost and settles what they held.",
        ),
        Maintenance(
            "muster.drain_dead_letters",
            Named("orchestrator.maintenance.drain_dead_letters"),
            "Turns dead letters into failed executions and DLQ entries.",
            asks_the_broker=True,
        ),
        Maintenance(
            "muster.retire_workers",
            Named("orchestrator.maintenance.retire_workers"),
            "Removes the queues of workers that are long gone.",
            asks_the_broker=True,
        ),
        Maintenance(
            "muster.detect_stale_tasks",
            Named("orchestrator.workflows.maintenance.detect_stale_tasks"),
            "Opens an investigation for tasks that are stuck, and moves them to error.",
            interval="staleness_interval_seconds",
        ),
    )
    when_clock_was_set_back = (
        Named("orchestrator.executions.bring_forward"),
        Named("orchestrator.workflows.bring_forward"),
    )
    executor_parts = (
        ExecutorPart(
            HotQueue(Named("orchestrator.workflows.messages.queue"), "muster.advance", "task_ids"),
            take=Named("orchestrator.workflows.advance_all"),
            ended=Named("orchestrator.workflows.note_ended"),
            look=Named("orchestrator.workflows.look"),
            any_open=Named("orchestrator.workflows.any_open"),
        ),
    )
    pack_contents = (
        PackContent(
            "templates",
            ("namespace_name", "name", "version"),
            check=Named("orchestrator.workflows.templates.check_template"),
            install=Named("orchestrator.workflows.templates.install_templates"),
        ),
    )

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
