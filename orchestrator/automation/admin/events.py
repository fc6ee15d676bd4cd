"""Events: list, page, and asking one rule again."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.safestring import SafeString
from unfold.decorators import display
from unfold.enums import ActionVariant
from unfold.forms import BaseDialogForm
from unfold.views import ChangeList
from unfold.widgets import UnfoldAdminSelectWidget

from orchestrator.automation import reporting
from orchestrator.automation.admin import event_page, tables
from orchestrator.automation.admin.filters import (
    CHOICE_LIMIT,
    ByAnswer,
    ByType,
    ReceivedWithin,
)
from orchestrator.automation.models import Event, Rule
from orchestrator.core import authority, clock
from orchestrator.core.admin import dialogs, render
from orchestrator.core.admin.listing import CreatedBetween, id_starts_with
from orchestrator.core.admin.read_only import BoundedChangeList, ReadOnlyAdmin, Section, go_to
from orchestrator.core.authority import Principal


class ReplayForm(BaseDialogForm):
    """The rule to ask again."""

    rule = forms.ChoiceField(
        widget=UnfoldAdminSelectWidget,
        help_text="No other rule is asked. It answers with what it says now.",
    )

    def __init__(self, request: HttpRequest, object_id: Any = None, **values: Any) -> None:
        super().__init__(request, object_id, **values)
        visible = Rule.objects.visible_to(authority.of_request(request)).enabled()
        refs = visible.filter(trigger__events=object_id).values_list("ref", flat=True)
        self.fields["rule"].choices = [(ref, ref) for ref in refs[:CHOICE_LIMIT]]


class EventChangeList(BoundedChangeList):
    def is_slow(self, chosen: Mapping[str, str]) -> bool:
        """Those that no rule was asked about have an index."""
        return chosen.get("rules", "") in ("matched", "unmatched")

    def get_queryset(self, *args: Any, **kwargs: Any) -> QuerySet[Event]:
        queryset: QuerySet[Event] = super().get_queryset(*args, **kwargs)
        # no column shows what may be a megabyte
        return queryset.select_related(None).defer("payload")


@admin.register(Event)
class EventAdmin(ReadOnlyAdmin):
    view_permission = "events.read"
    list_display = ("short_id", "type_ref", "origin", "deduplicated", "answered", "received")
    list_filter = (ByType, ByAnswer, ReceivedWithin, ("received_at", CreatedBetween))
    show_facets = admin.ShowFacets.NEVER
    search_fields = ("id",)
    search_help_text = "Start of an id, or a whole correlation id"
    actions_detail = ("replay",)

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return EventChangeList

    def get_queryset(self, request: HttpRequest) -> QuerySet[Event]:
        queryset: QuerySet[Event] = super().get_queryset(request)
        return queryset.select_related("trigger__type")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Event], search_term: str
    ) -> tuple[QuerySet[Event], bool]:
        """Search by id prefix or correlation id: each has an index."""
        term = search_term.strip()
        if not term:
            return queryset, False
        found = [Q(correlation_id=term)]
        found += [by_id] if (by_id := id_starts_with(term)) else []
        ids = [Event.objects.order_by().filter(each).values("pk") for each in found]
        return queryset.filter(pk__in=ids[0].union(*ids[1:])), False

    def sections(self, obj: Event, now: datetime, *, seen_by: Principal) -> list[Section]:
        return event_page.sections(obj, seen_by=seen_by)

    # --- columns

    @display(description="Id")
    def short_id(self, event: Event) -> SafeString:
        return render.short_id(event.pk)

    @display(description="Source")
    def origin(self, event: Event) -> str:
        return f"{event.source} {event.sent_by}".strip()

    @display(description="Key")
    def deduplicated(self, event: Event) -> SafeString | str:
        return render.message(event.dedup_key)

    @display(description="Rules that matched")
    def answered(self, event: Event) -> str:
        return tables.answered(event)

    @display(description="Received")
    def received(self, event: Event) -> SafeString | None:
        return render.moment(event.received_at)

    # --- asking a rule again

    def has_send_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        return self.may_act(request, "events.send", object_id)

    def buttons(self, obj: Event) -> Collection[str]:
        return ("replay",)

    @dialogs.button(
        "Ask a rule again",
        icon="replay",
        permission="send",
        question="Ask a rule about this again?",
        explanation=(
            "A new event with the same payload is recorded, for this rule alone. If the rule "
            "matches, its action runs."
        ),
        submit="Ask it",
        form=ReplayForm,
        variant=ActionVariant.PRIMARY,
    )
    def replay(self, request: HttpRequest, form: Any, object_id: str) -> HttpResponse:
        event: Any = self.get_object(request, object_id)
        if event is None:
            return dialogs.gone(request, home="admin:automation_event_changelist")
        ref = form.cleaned_data["rule"]
        recorded = reporting.replay(
            event, rule_ref=ref, principal=self.principal(request), now=clock.now()
        )
        self.log_change(request, event, f"Asked {ref} again: {recorded.event_id}")
        messages.success(request, f"{ref} is asked about this new event.")
        return go_to(request, reverse("admin:automation_event_change", args=[recorded.event_id]))
