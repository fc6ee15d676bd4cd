"""Errands in the admin."""

from __future__ import annotations

from datetime import datetime

from django.contrib import admin

from orchestrator.core.admin import render
from orchestrator.core.admin.read_only import ReadOnlyAdmin, Section
from orchestrator.core.authority import Principal
from tests.errands.models import Errand


@admin.register(Errand)
class ErrandAdmin(ReadOnlyAdmin):
    view_permission = "errands.read"
    list_display = ("id", "kind", "state")

    def sections(self, obj: Errand, now: datetime, *, seen_by: Principal) -> list[Section]:
        facts = [("State", obj.state), ("Execution", render.link_to(obj.execution))]
        return [Section(facts=facts)]
