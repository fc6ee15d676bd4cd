"""The core as a Django app, and the admin, which is found when its URLs are."""

import sqlite3
from typing import Any

from django.contrib.admin import apps as admin_apps
from django.contrib.admin import autodiscover
from django.contrib.admin.checks import check_admin_app, check_dependencies
from django.core import checks as django_checks
from django.db.backends.signals import connection_created
from django.db.models.signals import post_migrate, pre_migrate

from orchestrator.core.frame import Life, Maintenance, MusterApp, Named, SidebarItem, SubjectKind


class CoreConfig(MusterApp):
    name = "orchestrator.core"
    label = "orchestrator"
    verbose_name = "Muster"

    api_routers = (
        ("/executions", "orchestrator.core.api.executions.router"),
        ("/workers", "orchestrator.core.api.workers.router"),
        ("/dlq", "orchestrator.core.api.dlq.router"),
        ("/dlq", "orchestrator.core.api.dlq_reports.router"),
        ("/actions", "orchestrator.core.api.actions.router"),
        ("/health", "orchestrator.core.api.health.router"),
    )
    maintenance = (
        Maintenance(
            "muster.check_timeouts",
            Named("orchestrator.core.maintenance.check_timeouts"),
            "Ends what is overdue and schedules what was never picked up.",
        ),
        Maintenance(
            "muster.check_heartbeats",
            Named("orchestrator.core.maintenance.check_heartbeats"),
            "Declares silent workers lost and settles what they held.",
        ),
        Maintenance(
            "muster.drain_dead_letters",
            Named("orchestrator.core.maintenance.drain_dead_letters"),
            "Turns dead letters into failed executions and DLQ entries.",
            asks_the_broker=True,
        ),
        Maintenance(
            "muster.retire_workers",
            Named("orchestrator.core.maintenance.retire_workers"),
            "Removes the queues of workers that are long gone.",
            asks_the_broker=True,
        ),
    )
    when_clock_was_set_back = (Named("orchestrator.core.executions.bring_forward"),)
    subject_kinds = (
        SubjectKind(
            "execution",
            model="orchestrator.Execution",
            take=Named("orchestrator.core.executions.subjects.take"),
        ),
    )
    database_views = (Named("orchestrator.core.models.investigations.view_definitions"),)
    metrics = (Named("orchestrator.core.metrics.exposition.families"),)
    sidebar = (
        SidebarItem("Work", "Executions", "play_circle", "orchestrator.execution"),
        SidebarItem("Work", "Investigations", "troubleshoot", "orchestrator.investigationqueue"),
        SidebarItem("Work", "DLQ entries", "mail_off", "orchestrator.dlqentry"),
        SidebarItem("Fleet", "Workers", "dns", "orchestrator.worker"),
        SidebarItem("Catalogue", "Packs", "inventory_2", "orchestrator.pack"),
        SidebarItem("Catalogue", "Actions", "bolt", "orchestrator.action"),
        SidebarItem("Schedule", "Periodic tasks", "schedule", "django_celery_beat.periodictask"),
        SidebarItem("Schedule", "Intervals", "timer", "django_celery_beat.intervalschedule"),
        SidebarItem("Schedule", "Crontabs", "calendar_month", "django_celery_beat.crontabschedule"),
    )
    kinds = (
        "orchestrator.core.states.KINDS",
        "orchestrator.core.models.fleet.KINDS",
        "orchestrator.core.models.dead_letters.REASON_KINDS",
        "orchestrator.core.declarations.KINDS",
    )
    lives = (
        Life(
            "Executions",
            machine="orchestrator.core.states.EXECUTIONS",
            begins="accepted",
            notes=(
                "Whoever is named first may be dead. Each open status therefore has a due time in "
                "the row (`next_retry_at`, `start_by`, `run_deadline_at`, and always "
                "`deadline_at`), and the sweep ends or repeats whatever is overdue. It needs "
                "nothing but the database.",
                "A *new attempt* raises the fence: messages, claims and results of earlier "
                "attempts are refused from then on. The attempt only grows, and nothing resets it.",
                "Why an attempt ended is told by its [reason](reference/reasons.md).",
            ),
        ),
    )

    def ready(self) -> None:
        from orchestrator.core import checks, database, schedule  # noqa: F401 - registers them
        from orchestrator.core.models import view_definitions

        connection_created.connect(_allow_all_parameters)
        connection_created.connect(database.leave_read_only_sessions)
        pre_migrate.connect(view_definitions.drop, sender=self)
        post_migrate.connect(view_definitions.make, sender=self)
        post_migrate.connect(schedule.install, sender=self)


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
