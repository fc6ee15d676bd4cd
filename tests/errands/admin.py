"""Errands in the admin."""

from __future__ import annotations

from datetime import datetime

from django.contrib import admin
from django.utils.safestring import SafeString

from orchestrator.core.admin import render
from orchestrator.core.admin.read_only import ReadOnlyAdmin, Section
from orchestrator.core.models import Execution
from tests.errands.models import Errand


@admin.register(Errand)
class ErrandAdmin(ReadOnlyAdmin):
    list_display = ("id", "kind", "state")

    def sections(self, obj: Errand, now: datetime) -> list[Section]:
        facts = [("State", obj.state), ("Execution", render.link_to(obj.execution))]
        return [Section(facts=facts)]


def of_execution(execution: Execution) -> list[tuple[str, SafeString | None]]:
    """For an execution's page: the errand that it was run for."""
    return [
        ("Errand", render.link_to(errand)) for errand in Errand.objects.filter(execution=execution)
    ]
