"""Sensors: list, page, enabling, disabling and restarting."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import datetime
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.decorators import display
from unfold.enums import ActionVariant

from orchestrator.automation.admin import tables
from orchestrator.automation.models import Sensor
from orchestrator.automation.sensors import catalogue, logs
from orchestrator.automation.shown import sensors as shown
from orchestrator.core import authority, clock
from orchestrator.core.admin import dialogs, render
from orchestrator.core.admin.read_only import ReadOnlyAdmin, Section
from orchestrator.core.authority import Principal

HOME = "admin:automation_sensor_changelist"
LOG_LINES = 100
CHANGES = 20


class ReasonForm(dialogs.ReasonForm):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["reason"].help_text = "Stored on the sensor's page, with your name."


@admin.register(Sensor)
class SensorAdmin(ReadOnlyAdmin):
    view_permission = "sensors.read"
    list_display = ("ref", "situation", "run_by", "reported", "restarted", "reported_last", "why")
    list_filter = (
        ("assignment__state", admin.AllValuesFieldListFilter),
        ("pack", admin.RelatedOnlyFieldListFilter),
    )
    list_filter_submit = False
    show_facets = admin.ShowFacets.NEVER
    search_fields = ("ref",)
    search_help_text = "Part of a sensor's name"
    actions_detail = ("restart", "disable", "enable")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Sensor]:
        queryset: QuerySet[Sensor] = super().get_queryset(request)
        return queryset.select_related(*catalogue.RELATED)

    # --- columns

    @display(description="State")
    def situation(self, row: Sensor) -> SafeString:
        return render.state_badge(shown.state_of(row))

    @display(description="Service")
    def run_by(self, row: Sensor) -> str | None:
        return shown.summary(row).service

    @display(description="Events")
    def reported(self, row: Sensor) -> str:
        return f"{shown.summary(row).events:,}"

    @display(description="Restarts")
    def restarted(self, row: Sensor) -> int:
        return shown.summary(row).restarts

    @display(description="Last event")
    def reported_last(self, row: Sensor) -> SafeString | None:
        return render.moment(shown.summary(row).last_event_at)

    @display(description="Ended last")
    def why(self, row: Sensor) -> SafeString | str:
        return render.message(shown.summary(row).problem)

    # --- the page

    def sections(self, obj: Sensor, now: datetime, *, seen_by: Principal) -> list[Section]:
        boxes = [Section(facts=render.facts(shown.situation(obj, now))), _changes(obj)]
        if authority.may(seen_by, authority.PAYLOADS, obj.place):
            boxes += [_cursor(obj), _log(obj)]
        return [*boxes, done] if (done := tables.done_here(obj)) else boxes

    # --- enabling, disabling, restarting

    def has_enable_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        return self.may_act(request, "sensors.enable", object_id)

    def buttons(self, obj: Sensor) -> Collection[str]:
        if obj.retired_at is not None:
            return ()
        if obj.trigger_id is not None:
            return ("restart",)
        return ("restart", "disable") if obj.is_enabled else ("enable",)

    @dialogs.button(
        "Restart",
        icon="restart_alt",
        permission="enable",
        question="Restart this sensor?",
        explanation=(
            "It is ended wherever it runs, and started again at once with its cursor. What it had "
            "reported and was not recorded, it reports again."
        ),
        submit="Restart",
        form=ReasonForm,
        variant=ActionVariant.WARNING,
    )
    def restart(self, request: HttpRequest, form: Any, object_id: str) -> HttpResponse:
        return self._do(request, form, object_id, catalogue.restart, "Restarted")

    @dialogs.button(
        "Disable",
        icon="block",
        permission="enable",
        question="Disable this sensor?",
        explanation="It is ended, and keeps its cursor. Installing its pack does not start it.",
        submit="Disable",
        form=ReasonForm,
        variant=ActionVariant.WARNING,
    )
    def disable(self, request: HttpRequest, form: Any, object_id: str) -> HttpResponse:
        return self._do(request, form, object_id, catalogue.disable, "Disabled")

    @dialogs.button(
        "Enable",
        icon="check_circle",
        permission="enable",
        question="Enable this sensor?",
        explanation="A sensor service starts it within a second, with its cursor.",
        submit="Enable",
        form=ReasonForm,
        variant=ActionVariant.SUCCESS,
    )
    def enable(self, request: HttpRequest, form: Any, object_id: str) -> HttpResponse:
        return self._do(request, form, object_id, catalogue.enable, "Enabled")

    def _do(
        self,
        request: HttpRequest,
        form: Any,
        object_id: str,
        verb: Callable[..., Sensor],
        done: str,
    ) -> HttpResponse:
        sensor: Any = self.get_object(request, object_id)

        def change() -> None:
            verb(sensor.ref, now=clock.now(), actor=self.principal(request).actor)
            self.log_change(request, sensor, f"{done}: {form.cleaned_data['reason']}")

        return dialogs.do(request, sensor, change, f"{done}: {sensor}.", home=HOME)


def _changes(sensor: Sensor) -> Section:
    rows = [
        [
            render.moment(each.at), each.event, render.state_badge(each.to_state), each.actor,
            render.message(each.reason),
        ]
        for each in shown.latest_changes(sensor, CHANGES)
    ]  # fmt: skip
    headers = ["At", "Change", "State", "By", "Why"]
    return Section(title="Changes", body=render.table(headers, rows) if rows else "none")


def _cursor(sensor: Sensor) -> Section:
    assigned = shown.assignment_of(sensor)
    return Section(title="Cursor", body=render.pretty_json(assigned.cursor if assigned else {}))


def _log(sensor: Sensor) -> Section:
    lines = logs.read(sensor, lines=LOG_LINES)
    body = format_html("<pre>{}</pre>", "\n".join(lines)) if lines else "nothing"
    return Section(title=f"Log, the last {LOG_LINES} lines", body=body)
