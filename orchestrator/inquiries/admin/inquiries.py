"""Inquiries: a list with the open ones first, a page, and a form for the answer."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any

from django.contrib import admin, messages
from django.db.models import F, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.safestring import SafeString
from unfold.contrib.filters.admin import DropdownFilter
from unfold.decorators import action, display
from unfold.enums import ActionVariant

from orchestrator.core import clock
from orchestrator.core.admin import dialogs, render
from orchestrator.core.admin.listing import id_starts_with
from orchestrator.core.admin.read_only import ReadOnlyAdmin, Section
from orchestrator.core.authority import Principal
from orchestrator.core.errors import MusterError
from orchestrator.inquiries import answerers, answering
from orchestrator.inquiries.admin.response_form import ResponseForm
from orchestrator.inquiries.models import Inquiry
from orchestrator.inquiries.shown import inquiries as shown
from orchestrator.inquiries.states import KINDS, InquiryState

HOME = "admin:inquiries_inquiry_changelist"


class ByState(DropdownFilter):
    title = "state"
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(state.value, state.value) for state in InquiryState]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        state = self.value()
        return queryset.filter(state=state) if state in set(InquiryState) else queryset


class CancelForm(dialogs.ReasonForm):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["reason"].help_text = "Stored on the page of the inquiry, with your name."


@admin.register(Inquiry)
class InquiryAdmin(ReadOnlyAdmin):
    view_permission = "inquiries.read"
    list_display = ("question", "state_label", "who", "asker", "expires", "answer", "asked")
    list_filter = (ByState,)
    list_filter_submit = False
    show_facets = admin.ShowFacets.NEVER
    search_fields = ("id",)
    search_help_text = "Start of an id, of an inquiry or of the execution that asked"
    actions_detail = ("respond", "cancel")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Inquiry]:
        queryset: QuerySet[Inquiry] = super().get_queryset(request)
        return queryset.defer("schema")

    def get_ordering(self, request: HttpRequest) -> list[Any]:
        """The open ones first, and of each kind the newest."""
        return [F("ended_at").desc(nulls_first=True), "-pk"]

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Inquiry], search_term: str
    ) -> tuple[QuerySet[Inquiry], bool]:
        term = search_term.strip()
        if not term:
            return queryset, False
        own = id_starts_with(term)
        if own is None:
            return queryset.none(), False
        asked = id_starts_with(term, field="asked_by_execution_id")
        return queryset.filter(own | asked if asked else own), False

    def sections(self, obj: Inquiry, now: datetime, *, seen_by: Principal) -> list[Section]:
        facts = render.facts(shown.situation(obj, now, seen_by=seen_by))
        lines = shown.timeline(obj)
        life = render.table(
            ("At", "Event", "To", "By", "Reason"),
            [
                (render.moment(each.at), each.event, render.state_badge(each.to), each.actor,
                 render.printable(each.reason))
                for each in lines
            ],
        )  # fmt: skip
        return [
            Section(facts=facts, kind=KINDS.get(obj.state, "")),
            Section(title="Timeline", body=life),
            Section(title="Schema of the response", body=render.pretty_json(shown.schema(obj))),
        ]

    # --- columns

    @display(description="Question")
    def question(self, row: Inquiry) -> SafeString | str:
        return render.message(shown.line(row))

    @display(description="State", label=KINDS)
    def state_label(self, row: Inquiry) -> str:
        return row.state

    @display(description="May be answered by")
    def who(self, row: Inquiry) -> str:
        return ", ".join(row.assignees) or "anybody with permission"

    @display(description="Asked by")
    def asker(self, row: Inquiry) -> str:
        return row.asked_by

    @display(description="Expires")
    def expires(self, row: Inquiry) -> SafeString | None:
        if not row.is_open:
            return None
        return render.due(row.expires_at, row.as_of)  # type: ignore[attr-defined]

    @display(description="Answered by")
    def answer(self, row: Inquiry) -> str:
        return row.answered_by

    @display(description="Asked")
    def asked(self, row: Inquiry) -> SafeString | None:
        return render.moment(row.created_at)

    # --- answering and cancelling

    def buttons(self, obj: Inquiry) -> Collection[str]:
        return self.actions_detail if obj.is_open else ()

    def has_respond_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        if object_id is None:
            return self.may(request, answerers.RESPOND)
        obj = self.get_object(request, str(object_id))
        return obj is not None and answerers.may(obj, self.principal(request))

    def has_cancel_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        return self.may_act(request, answering.CANCEL, object_id)

    @action(description="Answer", icon="rate_review", permissions=["respond"])
    def respond(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """A page with a form that is made from the schema."""
        inquiry = self.get_object(request, object_id)
        if inquiry is None:
            return dialogs.gone(request, home=HOME)
        page = reverse("admin:inquiries_inquiry_change", args=[inquiry.pk])
        form = ResponseForm(request.POST if request.method == "POST" else None, inquiry=inquiry)
        if request.method == "POST" and form.is_valid():
            try:
                self._respond(request, inquiry, form.response)
            except MusterError as error:
                form.add_error(None, str(error))
            else:
                messages.success(request, "Answered.")
                return HttpResponseRedirect(page)
        seen_by = self.principal(request)
        context = self.admin_site.each_context(request) | {
            "opts": self.opts,
            "original": inquiry,
            "title": shown.line(inquiry),
            "form": form,
            "sections": [
                Section(facts=render.facts(shown.situation(inquiry, clock.now(), seen_by=seen_by)))
            ],
        }
        return TemplateResponse(request, "inquiries/admin/respond.html", context)

    def _respond(self, request: HttpRequest, inquiry: Inquiry, response: Any) -> None:
        answering.respond(inquiry.pk, response, by=self.principal(request), now=clock.now())
        self.log_change(request, inquiry, "Answered")

    @dialogs.button(
        "Cancel",
        icon="cancel",
        permission="cancel",
        question="Cancel this inquiry?",
        explanation="Nobody can answer it any more, and what waits for the answer fails.",
        submit="Cancel it",
        form=CancelForm,
        variant=ActionVariant.DANGER,
    )
    def cancel(self, request: HttpRequest, form: Any, object_id: str) -> HttpResponse:
        inquiry: Any = self.get_object(request, object_id)

        def verb() -> None:
            answering.cancel(
                inquiry.pk,
                by=self.principal(request),
                now=clock.now(),
                reason=form.cleaned_data["reason"],
            )
            self.log_change(request, inquiry, f"Cancelled: {form.cleaned_data['reason']}")

        return dialogs.do(request, inquiry, verb, "Cancelled.", home=HOME)
