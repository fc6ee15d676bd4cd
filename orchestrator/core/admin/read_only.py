"""Pages that show and never edit: what Muster writes, nobody else does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Model
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.safestring import SafeString
from unfold.admin import ModelAdmin
from unfold.views import ChangeList

from orchestrator.core import clock
from orchestrator.core.admin.listing import CappedPaginator


@dataclass(frozen=True, kw_only=True)
class Section:
    """One box of a detail page: names with their values, then whatever needs the width."""

    title: str = ""
    facts: Sequence[tuple[str, Any]] = ()
    body: SafeString | str = ""
    wide: bool = True
    kind: str = ""
    """Colours the edge: success, info, primary, warning, danger."""


class AsOfChangeList(ChangeList):
    """A list whose rows know the moment they are looked at, so that the clock is asked once."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        filtered = self.has_active_filters or self.query
        if not filtered or getattr(self.paginator, "is_capped", False):
            # equal counts keep "N results" out of the heading: it would be idle, or wrong
            self.full_result_count = self.result_count
        now = clock.now()
        for row in self.result_list:
            row.as_of = now


class ReadOnlyAdmin(ModelAdmin):
    """Lists and shows; its page is made of `sections()`, not of form fields."""

    change_form_template = "orchestrator/admin/detail.html"
    paginator = CappedPaginator
    show_full_result_count = False
    list_disable_select_all = True
    list_filter_submit = True
    list_per_page = 50
    sortable_by: Sequence[str] = ()
    fields: Sequence[str] = ()

    def sections(self, obj: Any, now: datetime) -> list[Section]:
        """The boxes of the detail page."""
        raise NotImplementedError

    def sections_for(self, request: HttpRequest, obj: Any, now: datetime) -> list[Section]:
        """The boxes for this user, where they depend on who looks."""
        return self.sections(obj, now)

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return AsOfChangeList

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def may_change(self, request: HttpRequest) -> bool:
        """Whether the user holds the model's change permission, which here allows the verbs."""
        meta = self.model._meta
        return bool(request.user.has_perm(f"{meta.app_label}.change_{meta.model_name}"))

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
            context |= {"sections": self.sections_for(request, obj, now), "now": now}
        response: HttpResponse = super().render_change_form(
            request, context, *args, obj=obj, **kwargs
        )
        return response


def go_to(request: HttpRequest, url: str) -> HttpResponse:
    """Leave a dialog for `url`: htmx posts dialogs, and follows a header rather than a redirect."""
    if request.headers.get("HX-Request"):
        return HttpResponse(headers={"HX-Redirect": url})
    return HttpResponseRedirect(url)
