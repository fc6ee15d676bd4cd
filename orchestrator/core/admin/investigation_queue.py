"""The queue of investigations, the most urgent first."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.decorators import display
from unfold.views import ChangeList

from orchestrator.core import authority, words
from orchestrator.core.admin import render
from orchestrator.core.admin.read_only import AsOfChangeList, ReadOnlyAdmin
from orchestrator.core.models import InvestigationQueue
from orchestrator.core.models.dead_letters import REASON_KINDS
from orchestrator.core.models.investigations import AGE_LIMIT
from orchestrator.core.shown import investigations as shown


class InvestigationChangeList(AsOfChangeList):
    """A list whose rows say what they are about, as this user may see it."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        principal = authority.of_request(request)
        for row in self.result_list:
            row.shown_about = shown.about(row, seen_by=principal)
            row.shown_detail = shown.detail(row, seen_by=principal)


@admin.register(InvestigationQueue)
class InvestigationQueueAdmin(ReadOnlyAdmin):
    """Rows of the view, the most urgent first; each leads to its entry."""

    view_permission = "dlq.read"
    list_display = ("score", "entry", "reason_label", "subject", "what", "waits", "opened")
    list_display_links = None
    list_filter = ("dlq_reason",)
    list_filter_submit = False
    show_facets = admin.ShowFacets.NEVER
    ordering = ("-priority_score", "entry_id")

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return InvestigationChangeList

    @display(description="Score")
    def score(self, row: InvestigationQueue) -> SafeString:
        minutes = min(row.minutes_in_dlq, AGE_LIMIT)
        parts = f"{row.priority_score - minutes:,.0f} + {minutes:,.0f} min"
        return format_html(
            '{} <span class="m-muted" title="{}">= {}</span>',
            f"{row.priority_score:,.0f}",
            "the weight of its reason and its execution, and a point for each minute",
            parts,
        )

    @display(description="Entry")
    def entry(self, row: InvestigationQueue) -> SafeString:
        url = reverse("admin:orchestrator_dlqentry_change", args=[row.entry_id])
        return render.link(url, render.short_id(row.dlq_entry_uuid))

    @display(description="Reason", label=REASON_KINDS)
    def reason_label(self, row: InvestigationQueue) -> str:
        return row.dlq_reason

    @display(description="About")
    def subject(self, row: InvestigationQueue) -> str:
        return render.printable(row.shown_about) if row.subject_name else "a letter"  # type: ignore[attr-defined]

    @display(description="Detail")
    def what(self, row: InvestigationQueue) -> SafeString | str:
        """Named otherwise than the field, which would be shown instead, to anybody."""
        return render.message(row.shown_detail)  # type: ignore[attr-defined]

    @display(description="Waits")
    def waits(self, row: InvestigationQueue) -> str:
        return words.span(row.minutes_in_dlq * 60)

    @display(description="Opened")
    def opened(self, row: InvestigationQueue) -> SafeString | None:
        return render.moment(row.dlq_timestamp)

    def change_view(
        self, request: HttpRequest, object_id: str, *args: object, **kwargs: object
    ) -> HttpResponse:
        """Redirect to the page of its entry."""
        row = self.get_object(request, object_id)
        if row is None:
            return HttpResponseRedirect(reverse("admin:orchestrator_investigationqueue_changelist"))
        url = reverse("admin:orchestrator_dlqentry_change", args=[row.entry_id])
        return HttpResponseRedirect(url)
