"""The Django admin: the pages on which operators look into problems."""

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
