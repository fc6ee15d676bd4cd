"""Queues as a Django app: what it brings to the frame."""

from orchestrator.core import queue_terms
from orchestrator.core.frame import (
    AUTHOR,
    INSTALLATION,
    OPERATOR,
    VIEWER,
    Maintenance,
    MusterApp,
    Named,
    PackContent,
    Permission,
    Retention,
    SidebarItem,
)


class QueuesConfig(MusterApp):
    name = "orchestrator.queues"
    verbose_name = "Queues"

    api_routers = (("/queues", "orchestrator.queues.api.queues.router"),)
    pack_contents = (
        PackContent(
            "queues",
            ("name",),
            check=Named("orchestrator.queues.definitions.check_queue"),
            install=Named("orchestrator.queues.contents.install"),
        ),
    )
    permissions = (
        Permission(
            "queues.read",
            "See queues, their figures and their workers.",
            about=(INSTALLATION,),
            roles=(VIEWER, OPERATOR, AUTHOR),
        ),
        Permission(
            "queues.change",
            "Make, change, pause, resume and retire queues. To make or change a gate, also needed: "
            "to run every action that it runs.",
            about=(INSTALLATION,),
            roles=(OPERATOR,),
        ),
    )
    maintenance = (
        Maintenance(
            "muster.drain_gate_letters",
            Named("orchestrator.queues.gates.letters.drain"),
            "Answers messages that died in the queues of gates with a broker of their own.",
            is_slow=True,
        ),
    )
    reference_pages = {
        "reference/gates.md": Named("orchestrator.queues.management.reference.gates_page"),
    }
    dead_letters = (Named("orchestrator.queues.gates.letters.take"),)
    kept_executions = (Named("orchestrator.queues.retention.belongs_to_a_ticket"),)
    execution_facts = (
        Named("orchestrator.queues.shown.queues.of_execution"),
        Named("orchestrator.queues.shown.tickets.of_execution"),
    )
    execution_contents = (Named("orchestrator.queues.shown.messages.of_execution"),)
    retention = (
        Retention(
            name="tickets",
            days="keep_tickets_days",
            model="queues.Ticket",
            ended="told_at",
            old=Named("orchestrator.queues.retention.old_tickets"),
        ),
    )
    warnings = (Named("orchestrator.queues.gates.condition.warnings"),)
    metrics = (Named("orchestrator.queues.metrics.families"),)
    metrics_described = ("orchestrator.queues.metrics.METRICS",)
    table_rights = ("orchestrator.queues.rights.TABLES",)
    sidebar = (SidebarItem("Work", "Queues", "queue", "queues.workqueue"),)
    kinds = ("orchestrator.queues.states.KINDS",)

    def ready(self) -> None:
        queue_terms.fill(Named("orchestrator.queues.terms.KnownQueues"))
