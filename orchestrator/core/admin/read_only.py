"""Pages that show rows and never edit them: only Muster writes these."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib.admin.options import IncorrectLookupParameters
from django.core.paginator import InvalidPage
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.safestring import SafeString
from unfold.admin import ModelAdmin
from unfold.views import ChangeList

from orchestrator.core import clock, cursors
from orchestrator.core.admin.guarded import Guarded
from orchestrator.core.admin.listing import CappedPaginator, CreatedBetween, CreatedWithin
from orchestrator.core.authority import Principal
from orchestrator.core.errors import MusterError


@dataclass(frozen=True, kw_only=True)
class Section:
    """One box of a detail page: names with their values, then a body of full width."""

    title: str = ""
    facts: Sequence[tuple[str, Any]] = ()
    body: SafeString | str = ""
    wide: bool = True
    kind: str = ""
    """The colour of the edge: success, info, primary, warning, danger."""


class AsOfChangeList(ChangeList):
    """A list whose rows have the time of the request, so that the clock is read once."""

    def get_ordering_field(self, field_name: Any) -> Any:
        """None for a column that has no link to sort by it: of an address, Django takes any, and
        the database would sort a whole table."""
        return super().get_ordering_field(field_name) if field_name in self.sortable_by else None

    def get_results(self, request: HttpRequest) -> None:
        """As Django's, without its second and third reading of a list that has one page."""
        per_page = self.list_per_page
        self.paginator = self.model_admin.get_paginator(request, self.queryset, per_page)
        self.result_count = self.paginator.count
        self.can_show_all = self.result_count <= self.list_max_show_all
        self.multi_page = self.result_count > per_page
        if self.show_all and self.can_show_all:
            self.result_list = self.queryset._clone()
        else:
            try:
                self.result_list = self.paginator.page(self.page_num).object_list
            except InvalidPage:
                raise IncorrectLookupParameters from None
        self.show_full_result_count, self.show_admin_actions = False, True
        filtered = self.has_active_filters or self.query
        # equal counts keep "N results" out of the heading: it would be useless, or wrong
        is_told = filtered and not getattr(self.paginator, "is_capped", False)
        self.full_result_count = None if is_told else self.result_count
        self.as_of = clock.now()
        for row in self.result_list:
            row.as_of = self.as_of


class SummarizedChangeList(AsOfChangeList):
    """A list whose rows have a summary, all of a page read together."""

    def summaries(self, rows: list[Any]) -> Iterable[Any]:
        """The facts that are known of each of these rows, in their order."""
        raise NotImplementedError

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        self.result_list = list(self.result_list)
        for row, summary in zip(self.result_list, self.summaries(self.result_list), strict=True):
            row.summary = summary


class BoundedChangeList(AsOfChangeList):
    """A list of which a filter without an index looks at the newest rows only, see ADR 50."""

    looked_at = ""
    to_look_further = "choose a time at which they were created"

    def is_slow(self, chosen: Mapping[str, str]) -> bool:
        """Return True if these parameters could make the database look for a few rows among all."""
        raise NotImplementedError

    def get_queryset(self, *args: Any, **kwargs: Any) -> QuerySet[Any]:
        queryset: QuerySet[Any] = super().get_queryset(*args, **kwargs)
        request: HttpRequest = args[0]
        return self._newest(request, queryset) if self.is_slow(request.GET.dict()) else queryset

    def _newest(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        rows = self.root_queryset.order_by()
        for spec in self.filter_specs:
            if isinstance(spec, CreatedWithin | CreatedBetween):
                rows = spec.queryset(request, rows)
        floor = cursors.last_looked_at(rows)
        if floor is None:
            return queryset
        self.looked_at = (
            f"Of the newest {cursors.LOOKED_AT_LIMIT:,} {self.opts.verbose_name_plural}. To look "
            f"at older ones, {self.to_look_further}."
        )
        return queryset.filter(pk__gte=floor)


class ReadOnlyAdmin(Guarded, ModelAdmin):
    """A list, and a page that consists of `sections()`, not of form fields."""

    change_form_template = "orchestrator/admin/detail.html"
    paginator = CappedPaginator
    show_full_result_count = False
    list_disable_select_all = True
    list_filter_submit = True
    list_per_page = 50
    sortable_by: Sequence[str] = ()
    fields: Sequence[str] = ()
    actions_detail: Sequence[str] = ()

    def sections(self, obj: Any, now: datetime, *, seen_by: Principal) -> list[Section]:
        """The boxes of the detail page, as this user may see them."""
        raise NotImplementedError

    def buttons(self, obj: Any) -> Collection[str]:
        """Those of `actions_detail` that change something for this row now."""
        return self.actions_detail

    def get_actions_detail(self, request: HttpRequest, object_id: Any) -> list[Any]:
        obj = self.get_object(request, object_id) if self.actions_detail else None
        if obj is None:
            return []
        useful = self.buttons(obj)
        allowed: list[Any] = super().get_actions_detail(request, object_id)
        return [each for each in allowed if each.action_name.rpartition("_")[2] in useful]

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return AsOfChangeList

    def render_change_form(
        self,
        request: HttpRequest,
        context: dict[str, Any],
        *args: Any,
        obj: Model | None = None,
        **kwargs: Any,
    ) -> HttpResponse:
        if obj is not None:
            now = clock.now()
            sections = self.sections(obj, now, seen_by=self.principal(request))
            context |= {"sections": sections, "now": now}
        response: HttpResponse = super().render_change_form(
            request, context, *args, obj=obj, **kwargs
        )
        return response


class AddableAdmin(ReadOnlyAdmin):
    """Rows are added one at a time, by a verb that may refuse: its refusal is an error of the form,
    which keeps what was typed."""

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        buttons = {"show_save_and_continue": False, "show_save_and_add_another": False}
        context = extra_context or buttons
        try:
            response: HttpResponse = super().add_view(request, form_url, context)
        except MusterError as error:
            request.refusal = str(error)  # type: ignore[attr-defined]
            response = super().add_view(request, form_url, context)
        return response

    def get_form(self, request: HttpRequest, obj: Any = None, **kwargs: Any) -> Any:
        form: Any = super().get_form(request, obj, **kwargs)
        refusal = getattr(request, "refusal", None)
        if refusal is None:
            return form

        class RefusedForm(form):
            def clean(self) -> None:
                super().clean()
                self.add_error(None, refusal)

        return RefusedForm


def go_to(request: HttpRequest, url: str) -> HttpResponse:
    """Leave a dialog for `url`: htmx posts dialogs, and follows a header rather than a redirect."""
    if request.headers.get("HX-Request"):
        return HttpResponse(headers={"HX-Redirect": url})
    return HttpResponseRedirect(url)
