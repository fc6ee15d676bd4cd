"""Actions on selected rows: a page names them and asks for a reason before anything changes."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from unfold.forms import BaseDialogForm

from orchestrator.core.admin import batches
from orchestrator.core.admin.batches import Order, Outcome, do_each
from orchestrator.core.admin.dialogs import ReasonForm

__all__ = ["Outcome", "action", "do_each"]

CONFIRMED = "_confirmed"
ACROSS = "select_across"
SHOWN_ROWS = 50

Ordered = Callable[[Any, HttpRequest, Any, list[Any]], Outcome]
"""Takes the admin, the request, the valid form, and the rows."""


def action(
    text: str,
    *,
    permission: str,
    needs: str,
    question: str,
    explanation: str,
    submit: str,
    done: str,
    form: type[BaseDialogForm] = ReasonForm,
) -> Callable[[Ordered], Any]:
    """Decorate the function that changes the selected rows after its page was answered.

    `permission`: whose `has_..._permission` is asked whether to offer it. `needs`: what the user
    needs for each row; the others are left out. `done`: what is said of the rows afterwards.

    The rows are those that the page listed. If all that match a filter were selected, and they are
    more than one request changes, the function is called for one batch after the other.
    """
    words = {"question": question, "explanation": explanation, "submit": submit}

    def decorate(function: Ordered) -> Any:
        @wraps(function)
        def asked(self: Any, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
            rows = self.within_reach(request, queryset, needs)
            confirmed = CONFIRMED in request.POST
            filled = form(data=request.POST if confirmed else None, request=request)
            context = words | {"form": filled, "action_name": function.__name__}
            order = Order.read(request.POST) if confirmed else None
            if not (confirmed and filled.is_valid()):
                return _question(self, request, rows, context, order)
            if order is None:
                chosen = list(rows)
                _say(request, function(self, request, filled, chosen), done)
                return None
            if batch := order.batch(rows):
                order = order.after(batch, function(self, request, filled, batch))
            if len(batch) == batches.ROWS_AT_ONCE:
                return _goes_on(self, request, context, order)
            _say(request, order.so_far, done)
            return None

        return admin.action(description=text, permissions=[permission])(asked)

    return decorate


def _question(
    page: Any,
    request: HttpRequest,
    rows: QuerySet[Any],
    context: dict[str, Any],
    order: Order | None,
) -> HttpResponse:
    """The page that asks. It lists the rows, or the first ones of an order in batches."""
    if order is None and request.POST.get(ACROSS) == "1" and rows[batches.ROWS_AT_ONCE :].exists():
        order = Order.on(rows)
    listed = list(rows if order is None else rows.order_by("-pk")[:SHOWN_ROWS])
    total = len(listed) if order is None else order.total
    context |= {
        "rows": listed,
        "shown": listed[:SHOWN_ROWS],
        "number": f"{total:,}" if order is None else order.size,
        "left_out": total - len(listed[:SHOWN_ROWS]),
        "is_one": total == 1,
        "order": order,
    }
    return _page(page, request, "selected", context)


def _goes_on(
    page: Any, request: HttpRequest, context: dict[str, Any], order: Order
) -> HttpResponse:
    """The page between two batches, which asks for the next one by itself."""
    return _page(page, request, "selected_goes_on", context | {"order": order})


def _page(page: Any, request: HttpRequest, name: str, context: dict[str, Any]) -> HttpResponse:
    meta = page.model._meta
    context |= page.admin_site.each_context(request) | {
        "opts": meta,
        "title": context["question"],
        "noun": meta.verbose_name if context.get("is_one") else meta.verbose_name_plural,
        "limit": batches.ROWS_AT_ONCE,
        "checkbox": ACTION_CHECKBOX_NAME,
        "confirmed": CONFIRMED,
        "across": ACROSS,
        "media": context["form"].media,
    }
    return TemplateResponse(request, f"orchestrator/admin/{name}.html", context)


def _say(request: HttpRequest, outcome: Outcome, done: str) -> None:
    """Say how many were done, and why the others were not."""
    for refusal in outcome.refusals:
        messages.error(request, refusal)
    if (more := outcome.refused - len(outcome.refusals)) > 0:
        messages.error(request, f"… and {more:,} more were refused.")
    if outcome.done:
        messages.success(request, f"{done}: {outcome.done:,} of {outcome.looked_at:,}.")
