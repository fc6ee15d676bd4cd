"""Workflows as a Django app: what it brings to the frame."""

from typing import Any

from django.db.models.signals import post_migrate

from orchestrator.core.frame import (
    AUTHOR,
    NAMESPACES,
    OPERATOR,
    VIEWER,
    ExecutorPart,
    Feed,
    History,
    HotQueue,
    Life,
    Maintenance,
    MusterApp,
    Named,
    PackContent,
    PackDependents,
    PackWork,
    Permission,
    Retention,
    SidebarItem,
    SubjectKind,
)

EVERYBODY = (VIEWER, OPERATOR, AUTHOR)


class WorkflowsConfig(MusterApp):
    name = "orchestrator.workflows"
    verbose_name = "Tasks"

    api_routers = (
        ("/tasks", "orchestrator.workflows.api.tasks.router"),
        ("/tasks", "orchestrator.workflows.api.steps.router"),
        ("/templates", "orchestrator.workflows.api.templates.router"),
        ("/dlq", "orchestrator.workflows.api.investigations.router"),
        ("/analytics", "orchestrator.workflows.api.analytics.router"),
    )
    plain_routers = (
        ("/dlq", "orchestrator.workflows.api.plain.investigations"),
        ("/tasks", "orchestrator.workflows.api.plain.steps"),
    )
    maintenance = (
        Maintenance(
            "muster.detect_stale_tasks",
            Named("orchestrator.workflows.maintenance.detect_stale_tasks"),
            "Opens an investigation for tasks that are stuck, and moves them to error.",
            interval="staleness_interval_seconds",
            is_slow=True,
        ),
        Maintenance(
            "muster.retry_served_steps",
            Named("orchestrator.workflows.engine.unserved.retry_served"),
            "Tries steps again that found no worker, when one has come.",
            is_slow=True,
        ),
    )
    retention = (
        Retention(
            name="tasks",
            days="keep_tasks_days",
            most="keep_tasks",
            model="workflows.Task",
            ended="ended_at",
            old=Named("orchestrator.workflows.retention.old_tasks"),
            parts=(
                "workflows.TransitionRecord.task",
                "workflows.StepDependency.child__task",
                "workflows.StepExecution.step__task",
                "workflows.Step.task",
            ),
            at_once=50,
        ),
    )
    kept_executions = (Named("orchestrator.workflows.retention.belongs_to_a_step"),)
    when_clock_was_set_back = (Named("orchestrator.workflows.engine.bring_forward"),)
    executor_parts = (
        ExecutorPart(
            HotQueue(Named("orchestrator.workflows.messages.queue"), "muster.advance", "task_ids"),
            take=Named("orchestrator.workflows.engine.advance_all"),
            ended=Named("orchestrator.workflows.engine.note_ended"),
            look=Named("orchestrator.workflows.engine.look"),
            any_open=Named("orchestrator.workflows.engine.any_open"),
        ),
    )
    pack_contents = (
        PackContent(
            "templates",
            ("namespace_name", "name", "version"),
            check=Named("orchestrator.workflows.task_templates.check_template"),
            install=Named("orchestrator.workflows.task_templates.install_templates"),
        ),
    )
    pack_dependents = (
        PackDependents(
            "template",
            broken=Named("orchestrator.workflows.pack_work.broken"),
            disable=Named("orchestrator.workflows.pack_work.disable"),
            reads="templates.read",
            disables="templates.install",
            about=NAMESPACES,
        ),
    )
    pack_work = (
        PackWork(
            "task",
            open=Named("orchestrator.workflows.pack_work.open_tasks"),
            cancel=Named("orchestrator.workflows.engine.cancel_for_pack"),
            reads="tasks.read",
            cancels="tasks.cancel",
            releases=Named("orchestrator.workflows.pack_work.needed_releases"),
            pause=Named("orchestrator.workflows.pack_work.pause"),
        ),
    )
    subject_kinds = (
        SubjectKind(
            "task",
            model="workflows.Task",
            take=Named("orchestrator.workflows.snapshots.take"),
            about=NAMESPACES,
            payloads=("last_error",),
        ),
    )
    permissions = (
        Permission(
            "tasks.run",
            "Request tasks. Also needed: to run every action that the template names.",
            about=(NAMESPACES,),
            roles=(OPERATOR, AUTHOR),
        ),
        Permission(
            "tasks.read", "See tasks and their steps.", about=(NAMESPACES,), roles=EVERYBODY
        ),
        Permission("tasks.cancel", "Cancel tasks.", about=(NAMESPACES,), roles=(OPERATOR, AUTHOR)),
        Permission(
            "steps.repair",
            "Reset, resolve and complete steps; resolve and release tasks. To complete one, also "
            "needed: to run every action that the template names.",
            about=(NAMESPACES,),
            roles=(OPERATOR,),
        ),
        Permission("templates.read", "See templates.", about=(NAMESPACES,), roles=EVERYBODY),
        Permission("templates.install", "Install templates.", about=(NAMESPACES,), roles=(AUTHOR,)),
        Permission(
            "analytics.read",
            "See the performance of templates.",
            about=(NAMESPACES,),
            roles=EVERYBODY,
        ),
    )
    feeds = (
        Feed(
            entity="task",
            model="workflows.Task",
            permission="tasks.read",
            about=Named("orchestrator.workflows.feeds.tasks"),
            history=History(Named("orchestrator.workflows.feeds.history_of_tasks"), key="task_id"),
        ),
    )
    table_rights = ("orchestrator.workflows.rights.TABLES",)
    database_views = (Named("orchestrator.workflows.models.views.definitions"),)
    metrics = (Named("orchestrator.workflows.metrics.families"),)
    metrics_described = ("orchestrator.workflows.metrics.METRICS",)
    execution_secrets = (Named("orchestrator.workflows.shown.secrets.of_executions"),)
    execution_askers = (Named("orchestrator.workflows.askers.of_executions"),)
    execution_facts = (Named("orchestrator.workflows.shown.tasks.of_execution"),)
    overview = (Named("orchestrator.workflows.admin.overview.boxes"),)
    sidebar = (
        SidebarItem("Tasks", "Tasks", "account_tree", "workflows.task"),
        SidebarItem("Tasks", "Steps", "checklist", "workflows.step"),
        SidebarItem("Tasks", "Templates", "schema", "workflows.tasktemplate"),
    )
    kinds = (
        "orchestrator.workflows.states.tasks.KINDS",
        "orchestrator.workflows.states.steps.KINDS",
        "orchestrator.workflows.models.staleness.KINDS",
    )
    lives = (
        Life(
            "Tasks",
            machine="orchestrator.workflows.states.TASKS",
            begins="requested",
            intro=(
                "A task is one run of a [task template](workflows.md). Its fence grows with every "
                "transition, so a caller that read it in an earlier visit to the same state is "
                "refused."
            ),
            notes=("`error` is no terminal state: a step that is repaired leads out of it.",),
        ),
        Life(
            "Steps",
            machine="orchestrator.workflows.states.STEPS",
            begins="created",
            intro=(
                "Each try at a step is an execution. The fence grows with each of them and with "
                "each repair; `attempts`, which the retry policy counts, may be reset, the fence "
                "may not."
            ),
        ),
    )

    def ready(self) -> None:
        post_migrate.connect(_follow_settings, sender=self)


def _follow_settings(*, using: str, **_: Any) -> None:
    """Copy the limits of the settings to the table that the views read."""
    from orchestrator.workflows.models import StalenessDefault

    StalenessDefault.objects.using(using).follow_settings()
