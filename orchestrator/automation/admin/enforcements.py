"""Enforcements: list and page."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString
from unfold.decorators import display
from unfold.views import ChangeList

from orchestrator.automation.admin import tables
from orchestrator.automation.admin.filters import ByRule, ByState
from orchestrator.automation.models import Enforcement, Rule
from orchestrator.automation.shown import enforcements as shown
from orchestrator.automation.states import KINDS, EnforcementState
from orchestrator.core import authority, words
from orchestrator.core.admin import render
from orchestrator.core.admin.listing import CreatedBetween, CreatedWithin, id_starts_with
from orchestrator.core.admin.read_only import BoundedChangeList, ReadOnlyAdmin, Section
from orchestrator.core.authority import Principal


class EnforcementChangeList(BoundedChangeList):
    def is_slow(self, chosen: Mapping[str, str]) -> bool:
        """Open ones and those of a rule have an index."""
        return chosen.get("state", "") in set(EnforcementState) - {EnforcementState.CREATED}

    def get_queryset(self, *args: Any, **kwargs: Any) -> QuerySet[Enforcement]:
        queryset: QuerySet[Enforcement] = super().get_queryset(*args, **kwargs)
        return queryset.defer("event__payload")

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        present = tables.existing(row.execution_id for row in self.result_list)
        principal = authority.of_request(request)
        for row in self.result_list:
            row.present = present
            row.shown_why = shown.why(row, seen_by=principal)


@admin.register(Enforcement)
class EnforcementAdmin(ReadOnlyAdmin):
    view_permission = "rules.read"
    list_display = ("short_id", "state_label", "of_rule", "about", "runs", "why", "took", "created")
    list_select_related = ("rule", "event")
    list_filter = (ByState, ByRule, CreatedWithin, ("created_at", CreatedBetween))
    show_facets = admin.ShowFacets.NEVER
    search_fields = ("id",)
    search_help_text = "Start of an id of an enforcement, event or execution, or part of a rule"

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return EnforcementChangeList

    def get_queryset(self, request: HttpRequest) -> QuerySet[Enforcement]:
        queryset: QuerySet[Enforcement] = super().get_queryset(request)
        return queryset.select_related("rule", "event")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Enforcement], search_term: str
    ) -> tuple[QuerySet[Enforcement], bool]:
        """Search by ids and rules: each has an index."""
        term = search_term.strip()
        if not term:
            return queryset, False
        # names are searched among the few rules
        rules = Rule.objects.filter(ref__icontains=term).values_list("pk", flat=True)
        found = [Q(rule_id__in=list(rules))] if rules else []
        for field in ("pk", "event_id", "execution_id"):
            found += [by_id] if (by_id := id_starts_with(term, field=field)) else []
        ids = [Enforcement.objects.order_by().filter(each).values("pk") for each in found]
        return (queryset.filter(pk__in=ids[0].union(*ids[1:])) if ids else queryset.none()), False

    def sections(self, obj: Enforcement, now: datetime, *, seen_by: Principal) -> list[Section]:
        facts = render.facts(shown.situation(obj, now, seen_by=seen_by))
        return [Section(facts=facts, kind=words.kind_of(obj.state))]

    # --- columns

    @display(description="Id")
    def short_id(self, row: Enforcement) -> SafeString:
        return render.short_id(row.pk)

    @display(description="State", label=KINDS)
    def state_label(self, row: Enforcement) -> str:
        return row.state

    @display(description="Rule")
    def of_rule(self, row: Enforcement) -> SafeString | None:
        return render.link_to(row.rule)

    @display(description="Event")
    def about(self, row: Enforcement) -> SafeString | None:
        return render.link_to(row.event, row.event.type_ref)

    @display(description="Execution")
    def runs(self, row: Enforcement) -> SafeString | None:
        return tables.execution(row, row.present)  # type: ignore[attr-defined]

    @display(description="Why none")
    def why(self, row: Enforcement) -> SafeString | str:
        return render.message(row.shown_why)  # type: ignore[attr-defined]

    @display(description="Took, or age")
    def took(self, row: Enforcement) -> str:
        end = row.ended_at or row.as_of  # type: ignore[attr-defined]
        return words.span((end - row.created_at).total_seconds())

    @display(description="Created")
    def created(self, row: Enforcement) -> SafeString | None:
        return render.moment(row.created_at)
