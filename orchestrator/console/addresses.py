"""The page of a row: here if it has one, or else in the admin."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any
from urllib.parse import urlencode

from django.db.models import Model
from django.urls import reverse

from orchestrator.automation.models import Enforcement, Event, Rule, Sensor, Trigger, Webhook
from orchestrator.core import authority
from orchestrator.core.authority import Principal
from orchestrator.core.models import Action, DLQEntry, Execution, Worker
from orchestrator.inquiries.models import Inquiry
from orchestrator.policies.models import Policy
from orchestrator.workflows.models import Step, Task, TaskTemplate


def _page(name: str, *key: object) -> str:
    return reverse(f"console:{name}", args=key)


@lru_cache(maxsize=10_000)
def of_worker(name: str) -> str:
    """The page of a worker; a map of a large fleet has thousands of them."""
    return _page("worker", name)


PAGES: dict[type[Model], Callable[[Any], str]] = {
    Worker: lambda row: of_worker(row.name),
    Execution: lambda row: _page("execution", row.pk),
    Task: lambda row: _page("task", row.pk),
    Step: lambda row: f"{_page('task', row.task_id)}?{urlencode({'step': row.name})}",
    TaskTemplate: lambda row: _page("template", row.namespace, row.name, row.version),
    Rule: lambda row: _page("rule", row.ref),
    Event: lambda row: _page("event", row.pk),
    Enforcement: lambda row: _page("event", row.event_id),
    Trigger: lambda row: _page("trigger", row.pk),
    Sensor: lambda row: _page("sensor", row.ref),
    Webhook: lambda row: _page("hook", row.path),
    Inquiry: lambda row: _page("inquiry", row.pk),
    Policy: lambda row: _page("policy", row.ref),
}


NEEDS: dict[type[Model], str] = {
    Action: "actions.read",
    DLQEntry: "dlq.read",
    Worker: "workers.read",
    Execution: "executions.read",
    Task: "tasks.read",
    Step: "tasks.read",
    TaskTemplate: "templates.read",
    Rule: "rules.read",
    Event: "events.read",
    Trigger: "triggers.read",
    Sensor: "sensors.read",
    Webhook: "triggers.read",
    Inquiry: "inquiries.read",
    Policy: "policies.read",
}
"""The permissions that the pages ask for, in the places of their rows."""


def may_open(row: Any, principal: Principal) -> bool:
    """Return True if the row's page is for this person, as far as that is known without asking for
    more rows."""
    permission = NEEDS.get(type(row))
    return permission is None or authority.may(principal, permission, row.place)


def of(row: Model) -> str:
    """The address of a row's page."""
    page = PAGES.get(type(row))
    if page is not None:
        return page(row)
    meta = row._meta
    return reverse(f"admin:{meta.app_label}_{meta.model_name}_change", args=[row.pk])
