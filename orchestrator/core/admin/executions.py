"""Executions: list, page, cancelling, and running again."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.decorators import display
from unfold.enums import ActionVariant
from unfold.views import ChangeList

from orchestrator.core import authority, clock, executions, search, words
from orchestrator.core.admin import (
    again,
    dialogs,
    execution_page,
    live_output,
    render,
    selected,
)
from orchestrator.core.admin.again import AgainForm
from orchestrator.core.admin.execution_filters import (
    ByAction,
    ByPack,
    ByReason,
    ByStatus,
    ByWorker,
    needs_a_window,
)
from orchestrator.core.admin.listing import (
    CreatedBetween,
    CreatedWithin,
)
from orchestrator.core.admin.read_only import BoundedChangeList, ReadOnlyAdmin, Section, go_to
from orchestrator.core.admin.selected import Outcome
from orchestrator.core.authority import Principal
from orchestrator.core.models import Execution
from orchestrator.core.shown import executions as shown
from orchestrator.core.states import KINDS as EXECUTION_KINDS

HOME = "admin:orchestrator_execution_changelist"

FOUND_LIMIT = 500
"""The most rows of a search that no index serves: ten pages."""


class ExecutionChangeList(BoundedChangeList):
    """A list that looks at a bounded number of rows, each with the message of its end."""

    def is_slow(self, chosen: Mapping[str, str]) -> bool:
        return needs_a_window(chosen)

    def get_queryset(self, *args: Any, **kwargs: Any) -> QuerySet[Execution]:
        queryset: QuerySet[Execution] = super().get_queryset(*args, **kwargs)
        # both may be a megabyte a row, and no column shows them whole
        return queryset.defer("parameters", "result")

    def get_results(self, request: HttpRequest) -> None:
        self.looked_at = getattr(request, "searched", self.looked_at)
        super().get_results(request)
        said = shown.messages(self.result_list, seen_by=authority.of_request(request))
        for execution in self.result_list:
            execution.message = said.get(execution.pk, "")


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
        "message",
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
    search_help_text = (
        "Such as status:failed ran:>5s, or a part of an id, an action, a correlation id"
    )
    actions = ("again_selected", "cancel_selected")
    actions_detail = ("again", "cancel")
    list_disable_select_all = False

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return ExecutionChangeList

    def get_queryset(self, request: HttpRequest) -> QuerySet[Execution]:
        queryset: QuerySet[Execution] = super().get_queryset(request)
        return queryset.select_related("worker")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Execution], search_term: str
    ) -> tuple[QuerySet[Execution], bool]:
        """Search in the language of all faces; nothing is shown for what cannot be read."""
        try:
            return self._searched(request, queryset, search_term), False
        except (search.NotUnderstood, search.SearchTookTooLong) as error:
            messages.error(request, render.preformatted(str(error)))
            return queryset.none(), False

    def _searched(
        self, request: HttpRequest, queryset: QuerySet[Execution], text: str
    ) -> QuerySet[Execution]:
        """Those of the rows that a search wants. Raises NotUnderstood and SearchTookTooLong."""
        rows: Any = queryset
        wanted = search.read(text, search.Asked(authority.of_request(request), clock.now()))
        if wanted.is_served_by_index:
            return queryset.filter(wanted.q)
        found = search.find(wanted, rows, limit=FOUND_LIMIT)
        if found.next_cursor is not None:
            request.searched = _bounds(found)  # type: ignore[attr-defined]
        return queryset.filter(pk__in=[row.pk for row in found.rows])

    def sections(self, obj: Execution, now: datetime, *, seen_by: Principal) -> list[Section]:
        return execution_page.sections(obj, now, seen_by=seen_by)

    # --- its output, refreshed

    def get_urls(self) -> list[Any]:
        output = path(
            "<path:object_id>/output/",
            self.admin_site.admin_view(self.output),
            name="orchestrator_execution_output",
        )
        return [output, *super().get_urls()]

    def output(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """The box with its newest output."""
        execution = self.get_object(request, object_id)
        return live_output.answer(execution, seen_by=self.principal(request))

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

    @display(description="Message")
    def message(self, execution: Execution) -> SafeString | str:
        return render.message(execution.message)  # type: ignore[attr-defined]

    @display(description="Took, or age")
    def took(self, execution: Execution) -> SafeString:
        end = execution.ended_at or execution.as_of  # type: ignore[attr-defined]
        text = words.span((end - execution.created_at).total_seconds())
        text = text if execution.ended_at else f"{text} so far"
        return format_html('<span class="whitespace-nowrap">{}</span>', text)

    @display(description="Created")
    def created(self, execution: Execution) -> SafeString | None:
        return render.moment(execution.created_at)

    # --- cancelling, and running again

    def has_cancel_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        return self.may_act(request, "executions.cancel", object_id)

    def has_run_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        return self.may_act(request, "executions.run", object_id)

    def buttons(self, obj: Execution) -> Collection[str]:
        return ("again",) if obj.is_terminal else ("cancel",)

    @dialogs.button(
        "Cancel execution",
        icon="cancel",
        permission="cancel",
        question="Stop this execution?",
        explanation=(
            "If it has not started, it never will. If it is running, its worker stops it. "
            "This cannot be undone."
        ),
        submit="Stop it",
        variant=ActionVariant.DANGER,
    )
    def cancel(self, request: HttpRequest, form: Any, object_id: str) -> HttpResponse:
        execution: Any = self.get_object(request, object_id)
        reason: str = form.cleaned_data["reason"]
        done = "The cancellation was accepted."
        return dialogs.do(
            request,
            execution,
            lambda: self._cancel(request, execution, reason),
            done,
            home=HOME,
        )

    @dialogs.button(
        "Run again",
        icon="replay",
        permission="run",
        question="Run this again?",
        explanation="A new execution is requested, with the same parameters and options.",
        submit="Run again",
        form=AgainForm,
        variant=ActionVariant.PRIMARY,
    )
    def again(self, request: HttpRequest, form: Any, object_id: str) -> HttpResponse:
        execution: Any = self.get_object(request, object_id)
        if execution is None:
            return dialogs.gone(request, home=HOME)
        new = self._run_again(request, execution, form)
        messages.success(request, f"It runs again: this is the new execution, {new.pk}.")
        return go_to(request, reverse("admin:orchestrator_execution_change", args=[new.pk]))

    @selected.action(
        "Cancel selected executions …",
        permission="cancel",
        needs="executions.cancel",
        question="Stop these executions?",
        explanation=(
            "What has not started never will. What is running is stopped by its worker. "
            "This cannot be undone."
        ),
        submit="Stop them",
        done="Cancellations accepted",
    )
    def cancel_selected(self, request: HttpRequest, form: Any, rows: list[Execution]) -> Outcome:
        reason: str = form.cleaned_data["reason"]

        def verb(execution: Execution) -> None:
            self._cancel(request, execution, reason)

        return selected.do_each(rows, verb)

    @selected.action(
        "Run selected again …",
        permission="run",
        needs="executions.run",
        question="Run these again?",
        explanation=(
            "A new execution is requested for each, with the same parameters and options. What "
            "has not ended, and what belongs to a task, is left out."
        ),
        submit="Run them again",
        done="Requested again",
        form=AgainForm,
    )
    def again_selected(self, request: HttpRequest, form: Any, rows: list[Execution]) -> Outcome:
        def verb(execution: Execution) -> Execution:
            return self._run_again(request, execution, form)

        return selected.do_each(rows, verb)

    def _cancel(self, request: HttpRequest, execution: Execution, reason: str) -> None:
        actor = dialogs.actor(request)
        executions.cancel(execution_id=execution.pk, actor=actor, reason=reason, now=clock.now())
        self.log_change(request, execution, f"Cancelled: {reason}")

    def _run_again(self, request: HttpRequest, execution: Execution, form: Any) -> Execution:
        new = again.run(request, execution, form)
        self.log_change(request, execution, f"Run again: {new.pk}")
        return new


def _bounds(found: search.Found) -> str:
    """The part that a search of which there is more looked at, and what to do."""
    said = found.looked_at.text if found.looked_at else ""
    said = said or f"The first {FOUND_LIMIT} that match."
    return f"{said} To look at older ones, add a time such as created:>1d."
