"""DLQ entries: dead letters and stuck work, with notes and resolutions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.safestring import SafeString
from unfold.decorators import display
from unfold.enums import ActionVariant
from unfold.forms import BaseDialogForm
from unfold.views import ChangeList
from unfold.widgets import UnfoldAdminTextareaWidget

from orchestrator.core import authority, clock, investigations
from orchestrator.core.admin import again, dead_letter_page, dialogs, render, selected
from orchestrator.core.admin.again import AgainForm
from orchestrator.core.admin.dead_letter_page import subject_link
from orchestrator.core.admin.listing import id_starts_with
from orchestrator.core.admin.read_only import BoundedChangeList, ReadOnlyAdmin, Section
from orchestrator.core.admin.selected import Outcome
from orchestrator.core.authority import Principal
from orchestrator.core.errors import NotFound
from orchestrator.core.investigations import TEXT_MAX
from orchestrator.core.models import DLQEntry, Execution
from orchestrator.core.models.dead_letters import REASON_KINDS, RESOLUTION_KINDS, may_scan
from orchestrator.core.shown import investigations as shown


class NoteForm(BaseDialogForm):
    """The note that is required before an entry is closed."""

    note = forms.CharField(
        max_length=TEXT_MAX,
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 4, "autofocus": ""}),
        help_text="Stored with your name and the time. A note is never changed.",
    )


class ByReason(admin.SimpleListFilter):
    title = "reason"
    parameter_name = "dlq_reason__exact"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(value, value) for value in DLQEntry.Reason.values]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(dlq_reason=self.value()) if self.value() else queryset


class ByResolution(admin.SimpleListFilter):
    title = "resolution"
    parameter_name = "resolution_status__exact"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(value, value) for value in DLQEntry.Resolution.values]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(resolution_status=self.value()) if self.value() else queryset


class DLQChangeList(BoundedChangeList):
    to_look_further = "choose the pending ones, or take `./manage.py dlq list`"

    def is_slow(self, chosen: Mapping[str, str]) -> bool:
        resolution = chosen.get(ByResolution.parameter_name) or None
        reason = chosen.get(ByReason.parameter_name) or None
        return may_scan(is_of_subject=False, resolution_status=resolution, others=[reason])

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        principal = authority.of_request(request)
        for entry in self.result_list:
            entry.shown_detail = shown.detail(entry, seen_by=principal)

    def get_queryset(self, *args: Any, **kwargs: Any) -> QuerySet[DLQEntry]:
        queryset: QuerySet[DLQEntry] = super().get_queryset(*args, **kwargs)
        return queryset.without_contents()  # type: ignore[attr-defined, no-any-return]


@admin.register(DLQEntry)
class DLQEntryAdmin(ReadOnlyAdmin):
    view_permission = "dlq.read"
    list_display = (
        "entry_id",
        "reason_label",
        "resolution_label",
        "subject",
        "original_queue",
        "detail_start",
        "opened",
    )
    list_filter = (ByResolution, ByReason)
    list_filter_submit = False
    show_facets = admin.ShowFacets.NEVER
    search_fields = ("id",)
    search_help_text = "Start of the id of an entry or of its subject, or a queue"
    actions = ("replay_selected", "resolve_selected", "fail_selected", "cancel_selected")
    list_disable_select_all = False
    actions_detail = ("resolve", "fail", "cancel", "annotate")

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return DLQChangeList

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[DLQEntry], search_term: str
    ) -> tuple[QuerySet[DLQEntry], bool]:
        term = search_term.strip()
        if not term:
            return queryset, False
        by_id = id_starts_with(term, field="dlq_entry_uuid")
        by_subject = id_starts_with(term, field="subject_id")
        if by_id and by_subject:
            return queryset.filter(by_id | by_subject), False
        return queryset.filter(original_queue=term), False

    # --- columns

    @display(description="Entry")
    def entry_id(self, entry: DLQEntry) -> SafeString:
        return render.short_id(entry.dlq_entry_uuid)

    @display(description="Reason", label=REASON_KINDS)
    def reason_label(self, entry: DLQEntry) -> str:
        return entry.dlq_reason

    @display(description="Resolution", label=RESOLUTION_KINDS)
    def resolution_label(self, entry: DLQEntry) -> str:
        return entry.resolution_status

    @display(description="About")
    def subject(self, entry: DLQEntry) -> SafeString | str:
        if entry.occurrences > 1:
            return f"{entry.occurrences:,} identical letters"
        return subject_link(entry, short=True) or "-"

    @display(description="Detail")
    def detail_start(self, entry: DLQEntry) -> SafeString | str:
        return render.message(entry.shown_detail)  # type: ignore[attr-defined]

    @display(description="Opened")
    def opened(self, entry: DLQEntry) -> SafeString | None:
        return render.moment(entry.dlq_timestamp)

    def sections(self, obj: DLQEntry, now: datetime, *, seen_by: Principal) -> list[Section]:
        return dead_letter_page.sections(obj, now, seen_by=seen_by)

    # --- notes and resolutions

    def has_investigate_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        return self.may_act(request, "dlq.change", object_id)

    def buttons(self, obj: DLQEntry) -> Collection[str]:
        """None for a closed entry: it is final."""
        return () if obj.is_closed else self.actions_detail

    @dialogs.button(
        "Resolved",
        icon="check_circle",
        permission="investigate",
        question="Close as resolved?",
        explanation="The problem is solved. A closed entry cannot be opened again.",
        submit="Close as resolved",
        form=NoteForm,
        variant=ActionVariant.SUCCESS,
    )
    def resolve(self, request: HttpRequest, form: Any, object_id: str) -> HttpResponse:
        return self._close_one(request, form, object_id, DLQEntry.Resolution.MANUALLY_RESOLVED)

    @dialogs.button(
        "Failed for good",
        icon="cancel",
        permission="investigate",
        question="Close as permanently failed?",
        explanation="Nothing more can be done. A closed entry cannot be opened again.",
        submit="Close as failed",
        form=NoteForm,
        variant=ActionVariant.DANGER,
    )
    def fail(self, request: HttpRequest, form: Any, object_id: str) -> HttpResponse:
        return self._close_one(request, form, object_id, DLQEntry.Resolution.PERMANENTLY_FAILED)

    @dialogs.button(
        "Not needed",
        icon="do_not_disturb_on",
        permission="investigate",
        question="Cancel the investigation?",
        explanation="Nobody needs to look into it. A closed entry cannot be opened again.",
        submit="Close as not needed",
        form=NoteForm,
    )
    def cancel(self, request: HttpRequest, form: Any, object_id: str) -> HttpResponse:
        return self._close_one(request, form, object_id, DLQEntry.Resolution.CANCELLED)

    @dialogs.button(
        "Add a note",
        icon="edit_note",
        permission="investigate",
        question="Add a note",
        explanation="The entry stays pending.",
        submit="Add",
        form=NoteForm,
    )
    def annotate(self, request: HttpRequest, form: Any, object_id: str) -> HttpResponse:
        note: str = form.cleaned_data["note"]

        def verb(entry: DLQEntry) -> None:
            investigations.annotate(
                entry.dlq_entry_uuid, note=note, now=clock.now(), actor=dialogs.actor(request)
            )
            self.log_change(request, entry, "Note added.")

        return self._do_to_one(request, object_id, verb, "The note was added.")

    def has_replay_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        return self.may_act(request, "executions.run", object_id)

    @selected.action(
        "Run their executions again …",
        permission="replay",
        needs="dlq.read",
        question="Run again what these are about?",
        explanation=(
            "A new execution is requested for each that is about one. The investigations stay "
            "open. What is about a task is repaired on the task's page."
        ),
        submit="Run them again",
        done="Requested again",
        form=AgainForm,
    )
    def replay_selected(self, request: HttpRequest, form: Any, rows: list[DLQEntry]) -> Outcome:
        def verb(entry: DLQEntry) -> None:
            new = again.run(request, self._execution_of(request, entry), form)
            self.log_change(request, entry, f"Run again: {new.pk}")

        return selected.do_each(rows, verb)

    def _execution_of(self, request: HttpRequest, entry: DLQEntry) -> Execution:
        """The execution that an entry is about. Raises NotFound if that is no execution that the
        user may run."""
        runnable = Execution.objects.visible_to(self.principal(request), "executions.run")
        id = entry.subject_id if entry.subject_kind == "execution" else None
        found = runnable.filter(pk=id).first() if id else None
        if found is None:
            raise NotFound("It is about no execution that you may run")
        return found

    @selected.action(
        "Close selected: resolved …",
        permission="investigate",
        needs="dlq.change",
        question="Close these as resolved?",
        explanation="The problems are solved. A closed entry cannot be opened again.",
        submit="Close as resolved",
        done="Closed",
        form=NoteForm,
    )
    def resolve_selected(self, request: HttpRequest, form: Any, rows: list[DLQEntry]) -> Outcome:
        return self._close_each(request, form, rows, DLQEntry.Resolution.MANUALLY_RESOLVED)

    @selected.action(
        "Close selected: failed for good …",
        permission="investigate",
        needs="dlq.change",
        question="Close these as permanently failed?",
        explanation="Nothing more can be done. A closed entry cannot be opened again.",
        submit="Close as failed",
        done="Closed",
        form=NoteForm,
    )
    def fail_selected(self, request: HttpRequest, form: Any, rows: list[DLQEntry]) -> Outcome:
        return self._close_each(request, form, rows, DLQEntry.Resolution.PERMANENTLY_FAILED)

    @selected.action(
        "Close selected: not needed …",
        permission="investigate",
        needs="dlq.change",
        question="Cancel these investigations?",
        explanation="Nobody needs to look into them. A closed entry cannot be opened again.",
        submit="Close as not needed",
        done="Closed",
        form=NoteForm,
    )
    def cancel_selected(self, request: HttpRequest, form: Any, rows: list[DLQEntry]) -> Outcome:
        return self._close_each(request, form, rows, DLQEntry.Resolution.CANCELLED)

    def _close_each(
        self,
        request: HttpRequest,
        form: Any,
        rows: list[DLQEntry],
        resolution: DLQEntry.Resolution,
    ) -> Outcome:
        note: str = form.cleaned_data["note"]

        def verb(entry: DLQEntry) -> None:
            self._close(request, entry, resolution, note)

        return selected.do_each(rows, verb)

    def _close_one(
        self, request: HttpRequest, form: Any, object_id: str, resolution: DLQEntry.Resolution
    ) -> HttpResponse:
        note: str = form.cleaned_data["note"]

        def verb(entry: DLQEntry) -> None:
            self._close(request, entry, resolution, note)

        return self._do_to_one(request, object_id, verb, f"The entry was closed: {resolution}.")

    def _do_to_one(
        self, request: HttpRequest, object_id: str, verb: Callable[[DLQEntry], None], done: str
    ) -> HttpResponse:
        entry: Any = self.get_object(request, object_id)
        home = "admin:orchestrator_dlqentry_changelist"
        return dialogs.do(request, entry, lambda: verb(entry), done, home=home)

    def _close(
        self, request: HttpRequest, entry: DLQEntry, resolution: DLQEntry.Resolution, note: str
    ) -> None:
        investigations.close(
            entry.dlq_entry_uuid,
            resolution=resolution,
            note=note,
            now=clock.now(),
            actor=dialogs.actor(request),
        )
        self.log_change(request, entry, f"Closed: {resolution}.")
