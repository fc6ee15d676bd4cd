"""Automation as a Django app: what it brings to the frame."""

from typing import Any

from django.db import connections
from django.db.models.signals import post_migrate

from orchestrator.core.frame import (
    AUTHOR,
    OPERATOR,
    PACKS,
    VIEWER,
    ExecutorPart,
    Feed,
    HotQueue,
    Life,
    Maintenance,
    MusterApp,
    Named,
    NewsListener,
    OpenDoor,
    PackContent,
    PackDependents,
    PackWork,
    Permission,
    Retention,
    SidebarItem,
    SubjectKind,
)

EVERYBODY = (VIEWER, OPERATOR, AUTHOR)


class AutomationConfig(MusterApp):
    name = "orchestrator.automation"
    verbose_name = "Automation"

    api_routers = (
        ("/trigger-types", "orchestrator.automation.api.triggers.types"),
        ("/triggers", "orchestrator.automation.api.triggers.router"),
        ("/sensors", "orchestrator.automation.api.sensors.router"),
        ("/rules", "orchestrator.automation.api.rules.router"),
        ("/events", "orchestrator.automation.api.events.router"),
        ("/enforcements", "orchestrator.automation.api.enforcements.router"),
        ("/hooks", "orchestrator.automation.api.hooks.router"),
    )
    executor_parts = (
        ExecutorPart(
            HotQueue(
                Named("orchestrator.automation.messages.events_queue"), "muster.match", "event_ids"
            ),
            take=Named("orchestrator.automation.matching.match"),
            look=Named("orchestrator.automation.looking.for_events"),
        ),
        ExecutorPart(
            HotQueue(
                Named("orchestrator.automation.messages.status_queue"),
                "muster.status_changed",
                "execution_ids",
            ),
            take=Named("orchestrator.automation.following.note_changed"),
            ended=Named("orchestrator.automation.following.note_changed"),
            look=Named("orchestrator.automation.following.look"),
            any_open=Named("orchestrator.automation.following.is_wanted"),
        ),
        ExecutorPart(
            HotQueue(
                Named("orchestrator.automation.messages.enforcements_queue"),
                "muster.enforce",
                "enforcement_ids",
            ),
            take=Named("orchestrator.automation.enforcing.enforce"),
            look=Named("orchestrator.automation.looking.for_enforcements"),
        ),
    )
    maintenance = (
        Maintenance(
            "muster.release_sensors",
            Named("orchestrator.automation.sensors.assignments.release_overdue"),
            "Frees the sensors of services whose leases have run out.",
            is_slow=True,
        ),
    )
    warnings = (Named("orchestrator.automation.sensors.condition.warnings"),)
    services = (Named("orchestrator.automation.sensors.services.lives"),)
    when_clock_was_set_back = (Named("orchestrator.automation.timers.bring_forward"),)
    retention = (
        Retention(
            name="events",
            days="keep_events_days",
            model="automation.Event",
            ended="evaluated_at",
            old=Named("orchestrator.automation.retention.old_events"),
            parts=("automation.Enforcement.event",),
        ),
        Retention(
            name="suppressions",
            days="keep_events_days",
            model="automation.Suppression",
            ended="until",
            old=Named("orchestrator.automation.retention.old_suppressions"),
        ),
        Retention(
            name="sensor_histories",
            days="keep_events_days",
            model="automation.AssignmentEvent",
            ended="at",
            old=Named("orchestrator.automation.retention.old_assignment_events"),
            is_history=True,
        ),
    )
    pack_contents = (
        # types first: rules name them
        PackContent(
            "triggers",
            ("name",),
            check=Named("orchestrator.automation.definitions.check_type"),
            install=Named("orchestrator.automation.contents.install_types"),
        ),
        PackContent(
            "sensors",
            ("name",),
            check=Named("orchestrator.automation.sensors.definitions.check_sensor"),
            install=Named("orchestrator.automation.contents.install_sensors"),
            check_pack=Named("orchestrator.automation.sensors.definitions.check_sensors_of_pack"),
        ),
        PackContent(
            "rules",
            ("name",),
            check=Named("orchestrator.automation.definitions.check_rule"),
            install=Named("orchestrator.automation.contents.install_rules"),
            check_pack=Named("orchestrator.automation.definitions.check_rules_of_pack"),
        ),
    )
    pack_dependents = (
        PackDependents(
            "rule",
            broken=Named("orchestrator.automation.dependents.broken"),
            disable=Named("orchestrator.automation.dependents.disable"),
            reads="rules.read",
            disables="rules.enable",
        ),
    )
    pack_work = (
        PackWork(
            "event",
            open=Named("orchestrator.automation.dependents.open_events"),
            cancel=Named("orchestrator.automation.dependents.cancel_events"),
            reads="rules.read",
            cancels="rules.enable",
            releases=Named("orchestrator.automation.dependents.needed_releases"),
            pause=Named("orchestrator.automation.dependents.pause"),
        ),
    )
    subject_kinds = (
        SubjectKind(
            "event",
            model="automation.Event",
            take=Named("orchestrator.automation.subjects.events"),
            about=PACKS,
        ),
        SubjectKind(
            "enforcement",
            model="automation.Enforcement",
            take=Named("orchestrator.automation.subjects.enforcements"),
            about=PACKS,
        ),
        SubjectKind(
            "webhook",
            model="automation.Webhook",
            take=Named("orchestrator.automation.subjects.webhooks"),
        ),
        SubjectKind(
            "sensor",
            model="automation.Assignment",
            take=Named("orchestrator.automation.subjects.sensors"),
            about=PACKS,
        ),
    )
    open_doors = (OpenDoor("/hooks/", admit=Named("orchestrator.automation.api.hooks.admit")),)
    permissions = (
        Permission("triggers.read", "See trigger types and triggers.", roles=EVERYBODY),
        Permission("triggers.change", "Make triggers.", roles=(AUTHOR,)),
        Permission("sensors.read", "See sensors and which service runs them.", roles=EVERYBODY),
        Permission(
            "sensors.enable", "Enable, disable and restart sensors.", roles=(OPERATOR, AUTHOR)
        ),
        Permission("events.read", "See events and their payloads.", roles=EVERYBODY),
        Permission("events.send", "Report events, and replay them.", roles=(OPERATOR, AUTHOR)),
        Permission("rules.read", "See rules and their answers to events.", roles=EVERYBODY),
        Permission(
            "rules.install",
            "Install rules. Also needed: to run the action, and to see the events; a rule runs its "
            "action with the permissions of who installed it.",
            roles=(AUTHOR,),
        ),
        Permission("rules.enable", "Enable and disable rules.", roles=(OPERATOR, AUTHOR)),
    )
    news_listeners = (
        NewsListener(
            wants=Named("orchestrator.automation.following.is_wanted_beyond_ends"),
            send=Named("orchestrator.automation.following.tell"),
        ),
    )
    execution_secrets = (Named("orchestrator.automation.shown.secrets.of_executions"),)
    execution_facts = (Named("orchestrator.automation.shown.enforcements.of_execution"),)
    metrics = (Named("orchestrator.automation.metrics.families"),)
    metrics_described = ("orchestrator.automation.metrics.METRICS",)
    feeds = (
        Feed(
            entity="event",
            model="automation.Event",
            permission="events.read",
            about=Named("orchestrator.automation.feeds.events"),
        ),
        Feed(
            entity="enforcement",
            model="automation.Enforcement",
            permission="rules.read",
            about=Named("orchestrator.automation.feeds.enforcements"),
        ),
        Feed(
            entity="rule",
            model="automation.Rule",
            permission="rules.read",
            about=Named("orchestrator.automation.feeds.rules"),
            columns=("revision_id", "enabled_by_pack", "enabled_override", "retired_at"),
            is_named_by_state=False,
        ),
        Feed(
            entity="trigger",
            model="automation.Trigger",
            permission="triggers.read",
            about=Named("orchestrator.automation.feeds.triggers"),
            columns=("parameters",),
            is_named_by_state=False,
        ),
        # what becomes of a sensor is in the row of its lease
        Feed(
            entity="sensor",
            model="automation.Assignment",
            permission="sensors.read",
            about=Named("orchestrator.automation.feeds.sensors"),
            columns=("state",),
        ),
    )
    table_rights = ("orchestrator.automation.rights.TABLES",)
    sidebar = (
        SidebarItem("Automation", "Rules", "rule", "automation.rule"),
        SidebarItem("Automation", "Events", "campaign", "automation.event"),
        SidebarItem("Automation", "Enforcements", "fact_check", "automation.enforcement"),
        SidebarItem("Automation", "Triggers", "bolt", "automation.trigger"),
        SidebarItem("Automation", "Webhooks", "webhook", "automation.webhook"),
        SidebarItem("Automation", "Sensors", "sensors", "automation.sensor"),
        SidebarItem("Automation", "Trigger types", "category", "automation.triggertype"),
    )
    kinds = (
        "orchestrator.automation.states.KINDS",
        "orchestrator.automation.states.ASSIGNMENT_KINDS",
    )
    lives = (
        Life(
            "Enforcements",
            machine="orchestrator.automation.states.ENFORCEMENTS",
            begins="created",
            intro="An enforcement is one rule's answer to one event. It has no history: its two "
            "times tell all of it.",
        ),
        Life(
            "Assignments of sensors",
            machine="orchestrator.automation.states.ASSIGNMENTS",
            begins="created",
            intro="An assignment says which sensor service runs a sensor. No state is terminal: a "
            "sensor that fails is started again for ever, and one that is disabled can be enabled.",
        ),
    )

    def ready(self) -> None:
        post_migrate.connect(_install_built_in, sender=self)


def _install_built_in(*, using: str, **_: Any) -> None:
    """Add the trigger types that Muster brings itself."""
    from orchestrator.automation import trigger_types
    from orchestrator.automation.models import TriggerType
    from orchestrator.core import clock

    if TriggerType._meta.db_table not in connections[using].introspection.table_names():
        return  # our own migrations are still to come, or were undone
    trigger_types.install_built_in(now=clock.now())
