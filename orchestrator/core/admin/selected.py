"""Actions on selected rows: a page names them and asks for a reason before anything changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from unfold.forms import BaseDialogForm

from orchestrator.core.admin.dialogs import ReasonForm
from orchestrator.core.errors import MusterError

ROWS_AT_ONCE = 500
"""A request does no more than this: the rest is a further selection."""

CONFIRMED = "_confirmed"
SHOWN_ROWS = 50
SHOWN_ERRORS = 5

Ordered = Callable[[Any, HttpRequest, Any, list[Any]], HttpResponse | None]
"""Takes the admin, the request, the valid form, and the rows."""


def action(
    text: str,
    *,
    permission: str,
    needs: str,
    question: str,
    explanation: str,
    submit: str,
    form: type[BaseDialogForm] = ReasonForm,
) -> Callable[[Ordered], Any]:
    """Decorate the function that changes the selected rows after its page was answered.

    `permission`: whose `has_..._permission` is asked whether to offer it. `needs`: what the user
    needs for each row; the others are left out. The rows are those that the page listed.
    """

    def decorate(function: Ordered) -> Any:
        @wraps(function)
        def asked(self: Any, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
            chosen = list(self.within_reach(request, queryset, needs)[: ROWS_AT_ONCE + 1])
            rows = chosen[:ROWS_AT_ONCE]
            confirmed = CONFIRMED in request.POST
            filled = form(data=request.POST if confirmed else None, request=request)
            if confirmed and filled.is_valid():
                return function(self, request, filled, rows)
            words = {"question": question, "explanation": explanation, "submit": submit}
            context = words | {
                "form": filled,
                "action_name": function.__name__,
                "more": len(chosen) > ROWS_AT_ONCE,
            }
            return _page(self, request, rows, context)

        return admin.action(description=text, permissions=[permission])(asked)

    return decorate


def _page(
    page: Any, request: HttpRequest, rows: Sequence[Model], context: dict[str, Any]
) -> HttpResponse:
    meta = page.model._meta
    noun = meta.verbose_name if len(rows) == 1 else meta.verbose_name_plural
    context |= page.admin_site.each_context(request) | {
        "opts": meta,
        "title": context["question"],
        "rows": rows,
        "shown": rows[:SHOWN_ROWS],
        "left_out": len(rows) - SHOWN_ROWS,
        "noun": noun,
        "limit": ROWS_AT_ONCE,
        "checkbox": ACTION_CHECKBOX_NAME,
        "confirmed": CONFIRMED,
        "media": context["form"].media,
    }
    return TemplateResponse(request, "orchestrator/admin/selected.html", context)


def do_each(
    request: HttpRequest, rows: Sequence[Model], verb: Callable[[Any], Any], done: str
) -> list[Any]:
    """Call the verb for each row; says how many were `done`, and why the others were not. Returns
    the answers of the verb."""
    answers, errors = [], []
    for row in rows:
        try:
            answers.append(verb(row))
        except MusterError as error:
            errors.append(f"{row}: {error}")
    for refusal in errors[:SHOWN_ERRORS]:
        messages.error(request, refusal)
    if len(errors) > SHOWN_ERRORS:
        messages.error(request, f"… and {len(errors) - SHOWN_ERRORS:,} more were refused.")
    if answers:
        messages.success(request, f"{done}: {len(answers):,} of {len(rows):,}.")
    return answers
