"""The Django admin: what an operator looks at when something is not as it should be."""

from django.contrib import admin

from orchestrator.core.admin import (
    catalog,
    dead_letters,
    executions,
    investigation_queue,
    schedule,
    workers,
)

admin.site.index_template = "orchestrator/admin/dashboard.html"
admin.site.index_title = "Overview"

__all__ = [
    "catalog",
    "dead_letters",
    "executions",
    "investigation_queue",
    "schedule",
    "workers",
]
