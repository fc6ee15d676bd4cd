"""Executions: list, page, and cancellation, the only change that can be made by hand."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any

from django.contrib import admin, messages
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.decorators import action, display
from unfold.enums import ActionVariant
from unfold.views import ChangeList

from orchestrator.core import clock, executions, words
from orchestrator.core.admin import dialogs, execution_page, render
from orchestrator.core.admin.execution_filters import ByAction, ByPack, ByReason, ByStatus, ByWorker
from orchestrator.core.admin.listing import CreatedBetween, CreatedWithin, id_starts_with
from orchestrator.core.admin.read_only import AsOfChangeList, ReadOnlyAdmin, Section, go_to
from orchestrator.core.authority import Principal
from orchestrator.core.errors import MusterError
from orchestrator.core.models import Action, Execution
from orchestrator.core.states import KINDS as EXECUTION_KINDS


class ExecutionChangeList(AsOfChangeList):
    def get_queryset(self, *args: Any, **kwargs: Any) -> QuerySet[Execution]:
        queryset: QuerySet[Execution] = super().get_queryset(*args, **kwargs)
        # both may be a megabyte a row, and no column shows them
        return queryset.defer("parameters", "result")


@admin.register(Execution)
class ExecutionAdmin(ReadOnlyAdmin):
    view_permission = "executions.read"
    list_display = (
        "short_id",
        "status_label",
        "action_ref",
        "attempts",
        "worker",
        "why",
        "took",
        "created",
    )
    list_select_related = ("worker",)
    list_filter = (
        ByStatus,
        ByReason,
        ByWorker,
        ByPack,
        ByAction,
        CreatedWithin,
        ("created_at", CreatedBetween),
    )
    show_facets = admin.ShowFacets.NEVER
    search_fields = ("id",)
    search_help_text = "Start of an id, action, or correlation id"
    actions = ("cancel_selected",)
    actions_detail = ("cancel",)

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return ExecutionChangeList

    def get_queryset(self, request: HttpRequest) -> QuerySet[Execution]:
        queryset: QuerySet[Execution] = super().get_queryset(request)
        return queryset.select_related("worker")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Execution], search_term: str
    ) -> tuple[QuerySet[Execution], bool]:
        """Search by id prefix, part of an action's ref, or correlation id: each has an index."""
        term = search_term.strip()
        if not term:
            return queryset, False
        # refs are looked up among the few actions: a LIKE over executions would read them all
        refs = Action.objects.filter(ref__icontains=term).values_list("ref", flat=True)
        wanted = Q(correlation_id=term) | Q(action_ref__in=list(refs))
        if by_id := id_starts_with(term):
            wanted |= by_id
        return queryset.filter(wanted), False

    def sections(self, obj: Execution, now: datetime, *, seen_by: Principal) -> list[Section]:
        return execution_page.sections(obj, now, seen_by=seen_by)

    # --- columns

    @display(description="Id")
    def short_id(self, execution: Execution) -> SafeString:
        return render.short_id(execution.pk)

    @display(description="Status", label=EXECUTION_KINDS)
    def status_label(self, execution: Execution) -> str:
        return execution.status

    @display(description="Attempt")
    def attempts(self, execution: Execution) -> str:
        if not execution.retry_count:
            return str(execution.attempt) if execution.attempt else "-"
        return f"{execution.attempt} ({execution.retry_count} retried)"

    @display(description="Reason")
    def why(self, execution: Execution) -> str:
        return execution.reason or execution.wait_reason or "-"

    @display(description="Took, or age")
    def took(self, execution: Execution) -> SafeString:
        end = execution.ended_at or execution.as_of  # type: ignore[attr-defined]
        text = words.span((end - execution.created_at).total_seconds())
        text = text if execution.ended_at else f"{text} so far"
        return format_html('<span class="whitespace-nowrap">{}</span>', text)

    @display(description="Created")
    def created(self, execution: Execution) -> SafeString | None:
        return render.moment(execution.created_at)

    # --- cancelling

    def has_cancel_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        return self.may_act(request, "executions.cancel", object_id)

    def buttons(self, obj: Execution) -> Collection[str]:
        return () if obj.is_terminal else self.actions_detail

    @action(
        description="Cancel execution",
        icon="cancel",
        variant=ActionVariant.DANGER,
        permissions=["cancel"],
        dialog={
            "title": "Stop this execution?",
            "description": (
                "If it has not started, it never will. If it is running, its worker stops it. "
                "This cannot be undone."
            ),
            "form_submit_text": "Stop it",
        },
    )
    def cancel(self, request: HttpRequest, form: Any, object_id: str) -> HttpResponse:
        execution = self.get_object(request, object_id)
        if execution is None:
            messages.error(request, f"There is no execution {object_id}.")
            return go_to(request, reverse("admin:orchestrator_execution_changelist"))
        try:
            self._cancel(request, execution)
        except MusterError as error:
            messages.error(request, str(error))
        else:
            messages.success(request, "The cancellation was accepted.")
        return go_to(request, reverse("admin:orchestrator_execution_change", args=[execution.pk]))

    @admin.action(description="Cancel selected executions", permissions=["cancel"])
    def cancel_selected(self, request: HttpRequest, queryset: QuerySet[Execution]) -> None:
        accepted = 0
        chosen = self.within_reach(request, queryset, "executions.cancel")
        # at most one page, even if the form contains more
        for execution in chosen[: self.list_per_page]:
            try:
                self._cancel(request, execution)
            except MusterError as error:
                messages.error(request, f"{execution}: {error}")
            else:
                accepted += 1
        if accepted:
            noun = "cancellation was" if accepted == 1 else "cancellations were"
            messages.success(request, f"{accepted} {noun} accepted.")

    def _cancel(self, request: HttpRequest, execution: Execution) -> None:
        actor = dialogs.actor(request)
        executions.cancel(execution_id=execution.pk, actor=actor, now=clock.now())
        self.log_change(request, execution, "Cancelled.")
