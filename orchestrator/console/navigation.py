"""The pages in the order of the sidebar; the palette and the keys are made of them, too."""

from __future__ import annotations

from typing import NamedTuple

from django.urls import reverse

from orchestrator.console.look import Look


class Entry(NamedTuple):
    """A page that one goes to."""

    name: str
    """Of its address, `console:NAME`; pages below it say it as their `here`."""
    title: str
    needs: str
    """The permission; empty for what all staff may see."""
    key: str = ""
    """It is pressed after `g`."""

    @property
    def url(self) -> str:
        return reverse(f"console:{self.name}")


ENTRIES = (
    Entry("now", "Now", "", "n"),
    Entry("executions", "Executions", "executions.read", "e"),
    Entry("run", "Run", "executions.run", "x"),
    Entry("tasks", "Tasks", "tasks.read", "t"),
    Entry("fleet", "Fleet", "workers.read", "f"),
    Entry("queues", "Queues", "queues.read", "q"),
    Entry("triage", "Triage", "dlq.read", "d"),
    Entry("causes", "Causes", "executions.read", "u"),
    Entry("bulk", "Bulk orders", "bulk.read", "b"),
    Entry("inquiries", "Inquiries", "inquiries.read", "i"),
    Entry("rules", "Rules", "rules.read", "r"),
    Entry("events", "Events", "events.read", "v"),
    Entry("schedules", "Schedules", "schedule.read", "s"),
    Entry("sensors", "Sensors", "sensors.read"),
    Entry("policies", "Policies", "policies.read"),
    Entry("catalogue", "Catalogue", "actions.read", "c"),
    Entry("templates", "Templates", "templates.read"),
    Entry("access", "Access", ""),
)


def entries(look: Look) -> list[Entry]:
    """Those that the user may see."""
    return [each for each in ENTRIES if not each.needs or look.may(each.needs)]
