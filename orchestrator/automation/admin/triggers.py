"""Triggers, the timers among them, and their types: lists and pages."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.contrib import admin
from django.db.models import Count, Q, QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString
from unfold.decorators import display

from orchestrator.automation.admin import tables, webhooks
from orchestrator.automation.admin.filters import ByType
from orchestrator.automation.models import Event, Rule, Trigger, TriggerType
from orchestrator.automation.shown import triggers as shown
from orchestrator.automation.shown import webhooks as shown_webhooks
from orchestrator.core import authority
from orchestrator.core.admin import render
from orchestrator.core.admin.read_only import ReadOnlyAdmin, Section
from orchestrator.core.authority import Principal

RULE_LIMIT = 100


@admin.register(Trigger)
class TriggerAdmin(ReadOnlyAdmin):
    view_permission = "triggers.read"
    list_display = ("label", "with_parameters", "rule_count", "fires_next", "fired", "catches_up")
    list_filter = (ByType,)
    list_filter_submit = False
    show_facets = admin.ShowFacets.NEVER
    search_fields = ("type__ref",)
    search_help_text = "Part of a type"
    ordering = ("-pk",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Trigger]:
        queryset: QuerySet[Trigger] = super().get_queryset(request)
        return queryset.select_related("type", "timer", "webhook").annotate(
            rule_total=Count("rules", filter=Q(rules__retired_at__isnull=True))
        )

    # --- columns

    @display(description="Trigger")
    def label(self, row: Trigger) -> str:
        return str(row)

    @display(description="Parameters")
    def with_parameters(self, row: Trigger) -> SafeString | str:
        return render.message(shown.parameters_line(row))

    @display(description="Rules")
    def rule_count(self, row: Trigger) -> int:
        return row.rule_total  # type: ignore[attr-defined, no-any-return]

    @display(description="Fires next")
    def fires_next(self, row: Trigger) -> SafeString | str | None:
        timer = shown.timer_of(row)
        if timer is None:
            return None
        if timer.next_fire_at is None:
            return "asleep"
        return render.due(timer.next_fire_at, row.as_of)  # type: ignore[attr-defined]

    @display(description="Last due")
    def fired(self, row: Trigger) -> SafeString | None:
        timer = shown.timer_of(row)
        return render.moment(timer.last_fired_at) if timer else None

    @display(description="Missed times")
    def catches_up(self, row: Trigger) -> str | None:
        return shown.catch_up(row)

    # --- the page

    def sections(self, obj: Trigger, now: datetime, *, seen_by: Principal) -> list[Section]:
        boxes = [Section(facts=render.facts(shown.situation(obj, now))), _rules(obj, seen_by)]
        if (hook := shown_webhooks.of_trigger(obj)) is not None:
            boxes += webhooks.sections(hook)
        if authority.may(seen_by, "events.read", obj.place):
            newest = Event.objects.filter(trigger=obj).order_by("-pk")
            boxes.append(tables.events(newest, type=obj.type.ref))
        return boxes


def _rules(trigger: Trigger, seen_by: Principal) -> Section:
    visible = Rule.objects.visible_to(seen_by).filter(trigger=trigger).select_related("revision")
    rows = [
        [render.link_to(rule), tables.enabled_badge(rule), rule.current.action_ref]
        for rule in visible[:RULE_LIMIT]
    ]
    headers = ["Rule", "State", "Action"]
    return Section(title="Rules", body=render.table(headers, rows) if rows else "none")


@admin.register(TriggerType)
class TriggerTypeAdmin(ReadOnlyAdmin):
    view_permission = "triggers.read"
    list_display = ("ref", "of_pack", "trigger_count", "description", "gone")
    list_select_related = ("pack",)
    search_fields = ("ref", "description")

    def get_queryset(self, request: HttpRequest) -> QuerySet[TriggerType]:
        queryset: QuerySet[TriggerType] = super().get_queryset(request)
        return queryset.select_related("pack").annotate(trigger_total=Count("triggers"))

    @display(description="Pack")
    def of_pack(self, row: TriggerType) -> Any:
        return render.link_to(row.pack) or "Muster itself"

    @display(description="Triggers")
    def trigger_count(self, row: TriggerType) -> int:
        return row.trigger_total  # type: ignore[attr-defined, no-any-return]

    @display(description="Retired")
    def gone(self, row: TriggerType) -> SafeString | None:
        return render.moment(row.retired_at)

    def sections(self, obj: TriggerType, now: datetime, *, seen_by: Principal) -> list[Section]:
        facts = [
            ("Type", render.mono(obj.ref)),
            ("Pack", self.of_pack(obj)),
            ("Description", obj.description),
            ("Updated", render.moment(obj.updated_at)),
            ("Retired", render.moment(obj.retired_at)),
            ("Triggers", render.search_link(Trigger, obj.ref)),
        ]
        type_shown = shown.type_shown(obj)
        return [
            Section(facts=facts),
            Section(
                title="Parameters of a trigger (JSON Schema)",
                body=render.pretty_json(type_shown.parameters_schema),
                wide=False,
            ),
            Section(
                title="Payload of its events (JSON Schema)",
                body=render.pretty_json(type_shown.payload_schema),
                wide=False,
            ),
        ]
