"""The periodic tasks of beat: django-celery-beat's own pages, in the look of this admin."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.core.exceptions import BadRequest
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django_celery_beat import admin as beat
from django_celery_beat.models import (
    ClockedSchedule,
    CrontabSchedule,
    IntervalSchedule,
    PeriodicTask,
    SolarSchedule,
)
from unfold.admin import ModelAdmin, TabularInline
from unfold.decorators import display
from unfold.widgets import UnfoldAdminTextInputWidget

from orchestrator.core import clock, schedule
from orchestrator.core.admin import render
from orchestrator.core.admin.guarded import Guarded
from orchestrator.core.admin.read_only import AsOfChangeList
from orchestrator.core.models import Tick

ROW_NUMBER = re.compile(r"[0-9]{1,18}")

for model in (ClockedSchedule, CrontabSchedule, IntervalSchedule, PeriodicTask, SolarSchedule):
    admin.site.unregister(model)


class GuardedSchedule(Guarded):
    """Whoever changes the schedule makes any Celery task run: that is for admins."""

    view_permission = "schedule.read"
    add_permission = change_permission = delete_permission = "schedule.change"

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        """Leave out actions on selected rows, which all change them."""
        if not self.has_change_permission(request):
            return {}
        actions: dict[str, Any] = super().get_actions(request)  # type: ignore[misc]
        return actions

    def response_action(self, request: HttpRequest, queryset: QuerySet[Any]) -> Any:
        """As Django's. Raises BadRequest for a selected row that is no number."""
        for selected in request.POST.getlist(ACTION_CHECKBOX_NAME):
            if not ROW_NUMBER.fullmatch(selected):
                raise BadRequest("Expected the primary key of a row")
        return super().response_action(request, queryset)  # type: ignore[misc]


class PeriodicTaskForm(beat.PeriodicTaskForm):
    """A form without the choice of registered tasks: this process does not load the executor's."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields.pop("regtask", None)
        if "task" in self.fields:
            self.fields["task"].label = "Task"
            self.fields["task"].widget = UnfoldAdminTextInputWidget()
            self.fields["task"].help_text = "The name of the Celery task."


class PeriodicTaskChangeList(AsOfChangeList):
    """A list whose rows know when maintenance ran: beat notes what it sent only every three
    minutes."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        ticks = dict(Tick.objects.values_list("name", "ran_at"))
        for task in self.result_list:
            task.ticks = ticks


@admin.register(PeriodicTask)
class PeriodicTaskAdmin(GuardedSchedule, beat.PeriodicTaskAdmin, ModelAdmin):
    form = PeriodicTaskForm
    list_display = ("name", "enabled", "when", "last_run", "description")
    list_filter = ("enabled",)
    date_hierarchy = None
    actions = ("enable_tasks", "disable_tasks")
    readonly_fields = ("last_run", "crontab_translation")
    fieldsets = (
        (None, {"fields": ("name", "task", "enabled", "description")}),
        (
            "Schedule (one of interval and crontab)",
            {
                "fields": (
                    "interval",
                    "crontab",
                    "crontab_translation",
                    "start_time",
                    "one_off",
                    "last_run",
                )
            },
        ),
        ("Arguments", {"fields": ("args", "kwargs"), "classes": ("collapse",)}),
        (
            "Message",
            {
                "fields": ("queue", "exchange", "routing_key", "priority", "headers"),
                "classes": ("collapse",),
            },
        ),
    )

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[AsOfChangeList]:
        return PeriodicTaskChangeList

    @display(description="Runs")
    def when(self, task: Any) -> str:
        return str(task.scheduler)

    @display(description="Last ran")
    def last_run(self, task: Any) -> SafeString | str:
        """The tick of a maintenance function; for others, what beat noted, which lags."""
        now: datetime = getattr(task, "as_of", None) or clock.now()
        ticks = getattr(task, "ticks", None) or dict(Tick.objects.values_list("name", "ran_at"))
        if ran_at := ticks.get(task.task):
            return render.since(ran_at, now) or ""
        if task.last_run_at is None:
            return "never"
        return format_html("{} or later", render.since(task.last_run_at, now))

    @display(description="In words")
    def crontab_translation(self, task: Any) -> str:
        return str(task.crontab.human_readable) if task.crontab else "-"


class TasksInline(Guarded, TabularInline):
    """The tasks that a change of this schedule affects."""

    model = PeriodicTask
    fields = ("name", "task", "enabled")
    readonly_fields = fields
    can_delete = False
    extra = 0
    show_change_link = True
    verbose_name_plural = "periodic tasks that use this schedule"
    view_permission = "schedule.read"


class IntervalScheduleForm(forms.ModelForm):
    """A form that refuses what would count as another interval."""

    class Meta:
        model = IntervalSchedule
        fields = ("every", "period")

    def clean(self) -> dict[str, Any] | None:
        given = super().clean() or self.cleaned_data
        every, period = given.get("every"), given.get("period")
        if every and period and every > schedule.LONGEST // schedule.interval(1, period):
            self.add_error("every", f"An interval has at most {schedule.LONGEST.days} days.")
        return given


@admin.register(IntervalSchedule)
class IntervalScheduleAdmin(GuardedSchedule, ModelAdmin):
    form = IntervalScheduleForm
    inlines = (TasksInline,)


@admin.register(CrontabSchedule)
class CrontabScheduleAdmin(GuardedSchedule, ModelAdmin):
    list_display = ("__str__", "human_readable")
    fields = (
        "human_readable",
        "minute",
        "hour",
        "day_of_month",
        "month_of_year",
        "day_of_week",
        "timezone",
    )
    readonly_fields = ("human_readable",)
    inlines = (TasksInline,)
