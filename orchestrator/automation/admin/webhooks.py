"""Webhooks: list and page."""

from __future__ import annotations

from datetime import datetime

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString
from unfold.decorators import display

from orchestrator.automation.admin import tables
from orchestrator.automation.models import Event, Webhook
from orchestrator.automation.shown import webhooks as shown
from orchestrator.core import authority
from orchestrator.core.admin import render
from orchestrator.core.admin.read_only import ReadOnlyAdmin, Section
from orchestrator.core.authority import Principal


@admin.register(Webhook)
class WebhookAdmin(ReadOnlyAdmin):
    view_permission = "triggers.read"
    list_display = ("path", "with_profile", "of_trigger", "taken", "refused", "last_came")
    search_fields = ("path",)
    search_help_text = "Part of a path"
    ordering = ("path",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Webhook]:
        queryset: QuerySet[Webhook] = super().get_queryset(request)
        return queryset.select_related("trigger__type").prefetch_related("deliveries")

    @display(description="Profile")
    def with_profile(self, row: Webhook) -> str:
        return str(row.trigger.parameters["profile"])

    @display(description="Trigger")
    def of_trigger(self, row: Webhook) -> SafeString | None:
        return render.link_to(row.trigger)

    @display(description="Taken")
    def taken(self, row: Webhook) -> int:
        return shown.totals(row.deliveries.all())[0]

    @display(description="Refused")
    def refused(self, row: Webhook) -> int:
        return shown.totals(row.deliveries.all())[1]

    @display(description="Last delivery")
    def last_came(self, row: Webhook) -> SafeString | None:
        return render.moment(max((each.last_at for each in row.deliveries.all()), default=None))

    def sections(self, obj: Webhook, now: datetime, *, seen_by: Principal) -> list[Section]:
        boxes = sections(obj)
        if authority.may(seen_by, "events.read", obj.place):
            newest = Event.objects.filter(trigger=obj.trigger_id).order_by("-pk")
            boxes.append(tables.events(newest, type=obj.trigger.type.ref))
        return boxes


def sections(hook: Webhook) -> list[Section]:
    """The boxes about a hook: where it is, and what became of deliveries."""
    rows = [
        [
            render.badge(each.outcome, "success" if shown.is_taken(each.outcome) else "warning"),
            shown.in_words(each.outcome),
            f"{each.total:,}",
            render.moment(each.last_at),
            render.printable(each.last_address),
            render.message(each.last_detail),
        ]
        for each in hook.deliveries.all()
    ]
    headers = ["Deliveries", "Meaning", "How many", "Last", "From", "Last reason"]
    return [
        Section(title="Webhook", facts=render.facts(shown.situation(hook))),
        Section(title="Deliveries", body=render.table(headers, rows) if rows else "none yet"),
    ]
