"""The Django admin: what an operator looks at when something is not as it should be."""

from django.contrib import admin

from orchestrator.admin import (
    access,
    catalog,
    dead_letters,
    executions,
    investigation_queue,
    schedule,
    steps,
    task_templates,
    tasks,
    workers,
)

admin.site.index_template = "orchestrator/admin/dashboard.html"
admin.site.index_title = "Overview"

__all__ = [
    "access",
    "catalog",
    "dead_letters",
    "executions",
    "investigation_queue",
    "schedule",
    "steps",
    "task_templates",
    "tasks",
    "workers",
]
