"""Tasks: list, page with graph, cancellation and resolution."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.contrib.filters.admin import DropdownFilter
from unfold.decorators import display
from unfold.enums import ActionVariant
from unfold.views import ChangeList

from orchestrator.core import authority, clock, words
from orchestrator.core.admin import dialogs, render
from orchestrator.core.admin.listing import ByKey, CreatedBetween, CreatedWithin, id_starts_with
from orchestrator.core.admin.read_only import BoundedChangeList, ReadOnlyAdmin, Section
from orchestrator.core.authority import Principal
from orchestrator.workflows import engine
from orchestrator.workflows.admin import task_page
from orchestrator.workflows.models import Task, TaskTemplate
from orchestrator.workflows.shown import steps
from orchestrator.workflows.shown import tasks as shown
from orchestrator.workflows.states import TASKS, TaskState
from orchestrator.workflows.states.tasks import KINDS as TASK_KINDS

TEMPLATE_LIMIT = 500
HOME = "admin:workflows_task_changelist"


class ByState(DropdownFilter):
    title = "state"
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        each = [(state.value, state.value) for state in TaskState]
        return [("open", "open: not ended, not in error"), *each]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Task]) -> QuerySet[Task]:
        value = self.value()
        if value == "open":
            return queryset.filter(ended_at__isnull=True)
        if value not in set(TaskState):
            return queryset
        # the partial indexes are over `ended_at`
        return queryset.filter(state=value, ended_at__isnull=value not in TASKS.ended)


class ByTemplate(ByKey):
    title = "template"
    parameter_name = field = "template"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        visible = TaskTemplate.objects.visible_to(authority.of_request(request))
        rows = visible.defer("definition")[:TEMPLATE_LIMIT]
        return [(str(template.pk), template.ref) for template in rows]


class TaskChangeList(BoundedChangeList):
    """A list that looks at a bounded number of rows for ends, of which any may be rare."""

    def is_slow(self, chosen: Mapping[str, str]) -> bool:
        return chosen.get("state") in TASKS.ended

    def get_queryset(self, *args: Any, **kwargs: Any) -> QuerySet[Task]:
        queryset: QuerySet[Task] = super().get_queryset(*args, **kwargs)
        return queryset.defer("context", "template__definition")

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        counts = steps.counts(task.pk for task in self.result_list)
        for task in self.result_list:
            task.step_counts = counts[task.pk]


@admin.register(Task)
class TaskAdmin(ReadOnlyAdmin):
    view_permission = "tasks.read"
    list_display = ("short_id", "state_label", "template_ref", "progress", "by", "took", "created")
    list_select_related = ("template",)
    list_filter = (ByState, ByTemplate, CreatedWithin, ("created_at", CreatedBetween))
    show_facets = admin.ShowFacets.NEVER
    search_fields = ("id",)
    search_help_text = "Start of an id, name of a template, or correlation id"
    actions_detail = ("release", "resolve", "cancel")

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return TaskChangeList

    def get_queryset(self, request: HttpRequest) -> QuerySet[Task]:
        queryset: QuerySet[Task] = super().get_queryset(request)
        return queryset.select_related("template")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Task], search_term: str
    ) -> tuple[QuerySet[Task], bool]:
        """Search by id prefix, template or correlation id: each has an index."""
        term = search_term.strip()
        if not term:
            return queryset, False
        # names are searched among the few templates: a LIKE over tasks would read them all
        templates = TaskTemplate.objects.filter(name__icontains=term).values_list("pk", flat=True)
        wanted = Q(correlation_id=term) | Q(template_id__in=list(templates))
        if by_id := id_starts_with(term):
            wanted |= by_id
        return queryset.filter(wanted), False

    def sections(self, obj: Task, now: datetime, *, seen_by: Principal) -> list[Section]:
        return task_page.of_task(obj, now, seen_by=seen_by)

    # --- columns

    @display(description="Id")
    def short_id(self, task: Task) -> SafeString:
        return render.short_id(task.pk)

    @display(description="State", label=TASK_KINDS)
    def state_label(self, task: Task) -> str:
        return task.state

    @display(description="Template")
    def template_ref(self, task: Task) -> SafeString:
        return format_html('<span class="m-anywhere">{}</span>', task.template.ref)

    @display(description="Steps done")
    def progress(self, task: Task) -> SafeString | str:
        counts = task.step_counts  # type: ignore[attr-defined]
        total = sum(counts.values())
        if not total:
            return "-"
        done = f"{shown.done(counts):,} of {total:,}"
        return format_html('<span class="whitespace-nowrap">{}</span>', done)

    @display(description="By")
    def by(self, task: Task) -> SafeString:
        by = task.initiator or task.requested_by or "-"
        return format_html('<span class="m-anywhere">{}</span>', by)

    @display(description="Took, or age")
    def took(self, task: Task) -> SafeString:
        end = task.ended_at or task.as_of  # type: ignore[attr-defined]
        text = words.span((end - task.created_at).total_seconds())
        text = text if task.ended_at else f"{text} so far"
        return format_html('<span class="whitespace-nowrap">{}</span>', text)

    @display(description="Created")
    def created(self, task: Task) -> SafeString | None:
        return render.moment(task.created_at)

    # --- ending it by hand

    def has_cancel_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        return self.may_act(request, "tasks.cancel", object_id)

    def has_repair_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        return self.may_act(request, "steps.repair", object_id)

    def buttons(self, obj: Task) -> Collection[str]:
        return [verb for verb in self.actions_detail if TASKS.allows(verb, obj.state)]

    @dialogs.button(
        "Release",
        icon="restart_alt",
        permission="repair",
        question="Have this task tried again as it is?",
        explanation=(
            "An executor advances it again. If executors died of it, repair what they died of "
            "first: a step, or the pack."
        ),
        submit="Release",
    )
    def release(self, request: HttpRequest, form: Any, object_id: str) -> HttpResponse:
        return self._end(request, form, object_id, engine.release, "Released.")

    @dialogs.button(
        "Resolve as it is",
        icon="task_alt",
        permission="repair",
        question="Close this task as it is?",
        explanation=(
            "Its work was done in another way. Its open steps are cancelled. This cannot be undone."
        ),
        submit="Resolve",
    )
    def resolve(self, request: HttpRequest, form: Any, object_id: str) -> HttpResponse:
        return self._end(request, form, object_id, engine.resolve, "Resolved.")

    @dialogs.button(
        "Cancel task",
        icon="cancel",
        permission="cancel",
        question="Cancel this task?",
        explanation=(
            "Its open steps are cancelled, and its running executions are stopped. This cannot "
            "be undone."
        ),
        submit="Cancel it",
        variant=ActionVariant.DANGER,
    )
    def cancel(self, request: HttpRequest, form: Any, object_id: str) -> HttpResponse:
        return self._end(request, form, object_id, engine.cancel, "Cancelled.")

    def _end(
        self, request: HttpRequest, form: Any, object_id: str, verb: Any, done: str
    ) -> HttpResponse:
        task = self.get_object(request, object_id)

        def end() -> None:
            verb(
                task.pk,
                reason=form.cleaned_data["reason"],
                actor=dialogs.actor(request),
                now=clock.now(),
            )
            self.log_change(request, task, done)

        return dialogs.do(request, task, end, f"The task is {done.lower()}", home=HOME)
