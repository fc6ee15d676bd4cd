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
    HotQueue,
    Life,
    MusterApp,
    Named,
    PackContent,
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
        ("/rules", "orchestrator.automation.api.rules.router"),
        ("/events", "orchestrator.automation.api.events.router"),
        ("/enforcements", "orchestrator.automation.api.enforcements.router"),
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
            "rules",
            ("name",),
            check=Named("orchestrator.automation.definitions.check_rule"),
            install=Named("orchestrator.automation.contents.install_rules"),
            check_pack=Named("orchestrator.automation.definitions.check_rules_of_pack"),
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
    )
    permissions = (
        Permission("triggers.read", "See trigger types and triggers.", roles=EVERYBODY),
        Permission("triggers.change", "Make triggers.", roles=(AUTHOR,)),
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
    status_wanted = (Named("orchestrator.automation.following.is_wanted_beyond_ends"),)
    execution_secrets = (Named("orchestrator.automation.shown.secrets.of_executions"),)
    execution_facts = (Named("orchestrator.automation.shown.enforcements.of_execution"),)
    metrics = (Named("orchestrator.automation.metrics.families"),)
    metrics_described = ("orchestrator.automation.metrics.METRICS",)
    table_rights = ("orchestrator.automation.rights.TABLES",)
    sidebar = (
        SidebarItem("Automation", "Rules", "rule", "automation.rule"),
        SidebarItem("Automation", "Events", "campaign", "automation.event"),
        SidebarItem("Automation", "Enforcements", "fact_check", "automation.enforcement"),
        SidebarItem("Automation", "Triggers", "sensors", "automation.trigger"),
        SidebarItem("Automation", "Trigger types", "category", "automation.triggertype"),
    )
    kinds = ("orchestrator.automation.states.KINDS",)
    lives = (
        Life(
            "Enforcements",
            machine="orchestrator.automation.states.ENFORCEMENTS",
            begins="created",
            intro="An enforcement is one rule's answer to one event. It has no history: its two "
            "times tell all of it.",
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
