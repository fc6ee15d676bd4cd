"""Errands in the admin."""

from __future__ import annotations

from datetime import datetime

from django.contrib import admin

from orchestrator.core.admin import render
from orchestrator.core.admin.read_only import ReadOnlyAdmin, Section
from tests.errands.models import Errand


@admin.register(Errand)
class ErrandAdmin(ReadOnlyAdmin):
    list_display = ("id", "kind", "state")

    def sections(self, obj: Errand, now: datetime) -> list[Section]:
        facts = [("State", obj.state), ("Execution", render.link_to(obj.execution))]
        return [Section(facts=facts)]
