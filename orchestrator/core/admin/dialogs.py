"""Dialogs that ask for a reason before something is done by hand, and the way back from them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from django import forms
from django.contrib import messages
from django.db.models import Model
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from unfold.dataclasses import ActionDialog
from unfold.decorators import action
from unfold.enums import ActionVariant
from unfold.forms import BaseDialogForm
from unfold.widgets import UnfoldAdminTextareaWidget

from orchestrator.core.admin.read_only import go_to
from orchestrator.core.errors import MusterError

REASON_MAX = 500


class ReasonForm(BaseDialogForm):
    """Why it is done: kept with what is done."""

    reason = forms.CharField(
        max_length=REASON_MAX,
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 3, "autofocus": ""}),
        help_text="Kept in the timeline, with your name.",
    )


def button(
    text: str,
    *,
    icon: str,
    permission: str,
    question: str,
    explanation: str,
    submit: str,
    form: type[BaseDialogForm] = ReasonForm,
    variant: ActionVariant = ActionVariant.DEFAULT,
) -> Callable[[Callable[..., HttpResponse]], Any]:
    """Decorate what a button of a page does once its dialog was answered."""
    asked: ActionDialog = {
        "title": question,
        "description": explanation,
        "form_class": form,
        "form_submit_text": submit,
    }
    decorate: Callable[[Callable[..., HttpResponse]], Any] = action(
        description=text, icon=icon, variant=variant, permissions=[permission], dialog=asked
    )
    return decorate


def do(
    request: HttpRequest, found: Model | None, verb: Callable[[], Any], done: str, *, home: str
) -> HttpResponse:
    """Do it, tell how it went, and go back to the page that the dialog was opened on.

    `home`: the list to go to if there is nothing to do it to.
    """
    if found is None:
        messages.error(request, "It is not there any more.")
        return go_to(request, reverse(home))
    try:
        verb()
    except MusterError as error:
        messages.error(request, str(error))
    else:
        messages.success(request, done)
    return go_to(request, _opened_on(request) or _own_page(found))


def actor(request: HttpRequest) -> str:
    return f"user:{request.user.get_username()}"


def _opened_on(request: HttpRequest) -> str:
    """The path that htmx says the browser is at. Only a path: it leads to no other host."""
    path = urlsplit(request.headers.get("HX-Current-URL", "")).path
    return path if path.startswith(reverse("admin:index")) else ""


def _own_page(found: Model) -> str:
    meta = found._meta
    return reverse(f"admin:{meta.app_label}_{meta.model_name}_change", args=[found.pk])
