"""The core as a Django app, and the admin, which is loaded with its URLs."""

import sqlite3
from typing import Any

from django.contrib.admin import apps as admin_apps
from django.contrib.admin import autodiscover
from django.contrib.admin.checks import check_admin_app, check_dependencies
from django.core import checks as django_checks
from django.db.backends.signals import connection_created
from django.db.models.signals import post_migrate, pre_migrate

from orchestrator.core.frame import (
    AUTHOR,
    INSTALLATION,
    NAMESPACES,
    OPERATOR,
    PACKS,
    VIEWER,
    WORKERS,
    Feed,
    History,
    Life,
    Maintenance,
    MusterApp,
    Named,
    Permission,
    Retention,
    SidebarItem,
    SubjectKind,
)

EVERYBODY = (VIEWER, OPERATOR, AUTHOR)


class CoreConfig(MusterApp):
    name = "orchestrator.core"
    label = "orchestrator"
    verbose_name = "Muster"

    api_routers = (
        ("/executions", "orchestrator.core.api.executions.router"),
        ("/executions", "orchestrator.core.api.logs.router"),
        ("/workers", "orchestrator.core.api.workers.router"),
        ("/dlq", "orchestrator.core.api.dlq.router"),
        ("/dlq", "orchestrator.core.api.dlq_reports.router"),
        ("/packs", "orchestrator.core.api.packs.router"),
        ("/actions", "orchestrator.core.api.actions.router"),
        ("/health", "orchestrator.core.api.health.router"),
    )
    plain_routers = (("/dlq", "orchestrator.core.api.dlq_plain.router"),)
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
            is_slow=True,
        ),
        Maintenance(
            "muster.retire_workers",
            Named("orchestrator.core.maintenance.retire_workers"),
            "Removes the queues of workers that are long gone.",
            is_slow=True,
        ),
        Maintenance(
            "muster.count_history",
            Named("orchestrator.core.metrics.history.count"),
            "Adds what happened to executions to the counters of `/metrics`.",
            is_slow=True,
        ),
        Maintenance(
            "muster.prune",
            Named("orchestrator.core.retention.prune"),
            "Removes what has been over for longer than the settings keep it.",
            interval="prune_interval_seconds",
            is_slow=True,
        ),
        Maintenance(
            "muster.close_letters",
            Named("orchestrator.core.retention.close_letters"),
            "Closes investigations of dead letters that nobody has closed, if a setting says when.",
            interval="prune_interval_seconds",
            is_slow=True,
        ),
        Maintenance(
            "muster.tidy_releases",
            Named("orchestrator.core.packs.tidying.tidy"),
            "Removes the content of releases of packs that nothing needs any more.",
            interval="prune_interval_seconds",
            is_slow=True,
        ),
    )
    retention = (
        Retention(
            name="workers",
            days="keep_workers_days",
            model="orchestrator.Worker",
            ended="retired_at",
            old=Named("orchestrator.core.retention.old_workers"),
            parts=("orchestrator.WorkerEvent.worker",),
            at_once=20,
        ),
        Retention(
            name="executions",
            days="keep_executions_days",
            most="keep_executions",
            model="orchestrator.Execution",
            ended="ended_at",
            old=Named("orchestrator.core.retention.old_executions"),
            parts=(
                "orchestrator.ExecutionEvent.execution",
                "orchestrator.TraceContext.execution_id",
                "orchestrator.OutputChunk.execution_id",
            ),
        ),
        Retention(
            name="output",
            days="keep_output_days",
            model="orchestrator.OutputChunk",
            ended="written_at",
            old=Named("orchestrator.core.retention.old_output"),
        ),
        Retention(
            name="entries",
            days="keep_entries_days",
            model="orchestrator.DLQEntry",
            ended="resolved_at",
            old=Named("orchestrator.core.retention.old_entries"),
            parts=("orchestrator.DLQEntryEvent.entry",),
        ),
    )
    when_clock_was_set_back = (Named("orchestrator.core.executions.bring_forward"),)
    subject_kinds = (
        SubjectKind(
            "execution",
            model="orchestrator.Execution",
            take=Named("orchestrator.core.executions.subjects.take"),
            about=PACKS,
            payloads=("parameters",),
        ),
    )
    permissions = (
        Permission("executions.run", "Request executions.", roles=(OPERATOR, AUTHOR)),
        Permission("executions.read", "See executions and their histories.", roles=EVERYBODY),
        Permission(
            "searches.share",
            "Save searches for everybody, and remove such of others. Their own, all save who may "
            "read executions.",
            about=(INSTALLATION,),
            roles=(OPERATOR, AUTHOR),
        ),
        Permission("executions.cancel", "Cancel executions.", roles=(OPERATOR, AUTHOR)),
        Permission("actions.read", "See packs and actions.", roles=EVERYBODY),
        Permission(
            "actions.run_any_command",
            "Run actions that their packs mark `dangerous`, such as `core.shell`: they do "
            "whatever their caller says. In addition to `executions.run`.",
        ),
        Permission(
            "packs.install",
            "Install, upgrade and remove packs; disable and enable their actions.",
            roles=(AUTHOR,),
        ),
        Permission(
            "payloads.read",
            "See parameters, results, contexts, snapshots, raw messages, and `env` and `headers` "
            "of actions. Without it they are `***`, on every face.",
            about=(PACKS, NAMESPACES),
        ),
        Permission("workers.read", "See workers.", about=(WORKERS,), roles=EVERYBODY),
        Permission(
            "workers.order",
            "Cordon, uncordon and drain workers.",
            about=(WORKERS,),
            roles=(OPERATOR,),
        ),
        Permission("workers.retire", "Retire workers.", about=(WORKERS,)),
        Permission("dlq.read", "See investigations.", about=(PACKS, NAMESPACES), roles=EVERYBODY),
        Permission(
            "dlq.change",
            "Open investigations, add notes, close them.",
            about=(PACKS, NAMESPACES),
            roles=(OPERATOR,),
        ),
        Permission(
            "metrics.read",
            "See `/metrics`, and when maintenance last ran.",
            about=(INSTALLATION,),
            roles=EVERYBODY,
        ),
        Permission(
            "schedule.read", "See the schedule.", about=(INSTALLATION,), roles=(VIEWER, OPERATOR)
        ),
        Permission("schedule.change", "Change the schedule.", about=(INSTALLATION,)),
        Permission(
            "retention.prune",
            "Remove what is older than the settings keep it, now.",
            about=(INSTALLATION,),
        ),
        Permission(
            "topology.read",
            "Compare the broker's queues with the topology.",
            about=(INSTALLATION,),
            roles=(OPERATOR,),
        ),
        Permission(
            "topology.change",
            "Declare and migrate queues; drain the dead letter queue now.",
            about=(INSTALLATION,),
        ),
    )
    feeds = (
        Feed(
            entity="execution",
            model="orchestrator.Execution",
            permission="executions.read",
            about=Named("orchestrator.core.feeds.executions"),
            history=History(
                Named("orchestrator.core.feeds.history_of_executions"), key="execution_id"
            ),
        ),
        Feed(
            entity="worker",
            model="orchestrator.Worker",
            permission="workers.read",
            about=Named("orchestrator.core.feeds.workers"),
            columns=("status", "cordoned", "retired_at"),
        ),
        Feed(
            entity="dlq",
            model="orchestrator.DLQEntry",
            permission="dlq.read",
            about=Named("orchestrator.core.feeds.entries"),
            columns=("resolution_status", "updated_at"),
        ),
    )
    table_rights = ("orchestrator.core.rights.TABLES",)
    database_views = (Named("orchestrator.core.models.investigations.view_definitions"),)
    metrics = (
        Named("orchestrator.core.metrics.exposition.families"),
        Named("orchestrator.core.queue_depths.families"),
    )
    metrics_described = (
        "orchestrator.core.metrics.exposition.METRICS",
        "orchestrator.core.queue_depths.METRICS",
    )
    reference_pages = {
        "state-machine.md": Named("orchestrator.core.management.pages.state_machine.page"),
        "topology.md": Named("orchestrator.core.management.pages.topology.page"),
        "reference/settings.md": Named("orchestrator.core.management.pages.settings.page"),
        "reference/reasons.md": Named("orchestrator.core.management.pages.reasons.page"),
        "reference/permissions.md": Named("orchestrator.core.management.pages.permissions.page"),
        "reference/commands.md": Named("orchestrator.core.management.pages.commands.page"),
        "reference/metrics.md": Named("orchestrator.core.management.pages.metrics.page"),
    }
    services = (Named("orchestrator.core.presence.of_core"),)
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
                "The process that is named first may be dead. Each open status therefore has a "
                "due time in the row (`next_retry_at`, `start_by`, `run_deadline_at`, and always "
                "`deadline_at`), and the sweep ends or repeats whatever is overdue. It needs "
                "nothing but the database.",
                "A *new attempt* raises the fence: messages, claims and results of earlier "
                "attempts are refused from then on. The attempt only grows, and nothing resets it.",
                "The [reason](reference/reasons.md) of an attempt says why it ended.",
            ),
        ),
    )

    def ready(self) -> None:
        from orchestrator.core import (
            checks,  # noqa: F401 - registers them
            database,
            memory,
            migration_history,
            outages,
            schedule,
        )
        from orchestrator.core.models import view_definitions

        memory.hide()

        connection_created.connect(_allow_all_parameters)
        connection_created.connect(database.leave_read_only_sessions)
        connection_created.connect(database.leave_broken_sessions)
        connection_created.connect(database.load_times_natively)
        connection_created.connect(outages.notice_end)
        outages.brake_foreign_lines()
        pre_migrate.connect(migration_history.require_known, sender=self)
        pre_migrate.connect(view_definitions.drop, sender=self)
        post_migrate.connect(view_definitions.make, sender=self)
        post_migrate.connect(schedule.install, sender=self)


class AdminConfig(admin_apps.SimpleAdminConfig):
    """The admin without discovery at start: `settings.urls` does that, and only the API loads
    it."""

    default_site = "unfold.sites.UnfoldAdminSite"

    def ready(self) -> None:
        django_checks.register(check_dependencies, django_checks.Tags.admin)
        django_checks.register(_check_admin, django_checks.Tags.admin)


def _check_admin(app_configs: Any, **options: Any) -> Any:
    autodiscover()
    return check_admin_app(app_configs, **options)


def _allow_all_parameters(connection: Any, **_: Any) -> None:
    """Allow as many parameters in a statement as this SQLite takes: Django 5.2 always assumes
    999."""
    if connection.vendor == "sqlite":
        limit = connection.connection.getlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER)
        connection.features.max_query_params = limit
