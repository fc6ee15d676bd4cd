"""Dialogs that ask for a reason before an operator's action, and the redirect after it."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any
from urllib.parse import urlsplit

from django import forms
from django.contrib import messages
from django.db.models import Model
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
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
    """The reason, which is stored with the change."""

    reason = forms.CharField(
        max_length=REASON_MAX,
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 3, "autofocus": ""}),
        help_text="Stored in the timeline, with your name.",
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
    """Decorate the function that a page's button calls after its dialog."""
    dialog: ActionDialog = {
        "title": question,
        "description": explanation,
        "form_class": form,
        "form_submit_text": submit,
    }
    decorate: Callable[[Callable[..., HttpResponse]], Any] = action(
        description=text, icon=icon, variant=variant, permissions=[permission], dialog=dialog
    )
    return lambda function: decorate(_answering_refusals(function, dialog))


def _answering_refusals(
    function: Callable[..., HttpResponse], dialog: ActionDialog
) -> Callable[..., HttpResponse]:
    """Show the dialog again, with what was wrong, if the verb refuses."""

    @wraps(function)
    def answered(self: Any, request: HttpRequest, form: Any, object_id: str) -> HttpResponse:
        try:
            return function(self, request, form, object_id)
        except MusterError as error:
            form.add_error(None, str(error))
        context = {"dialog": dialog, "form": form, "form_submit_text": dialog["form_submit_text"]}
        return render(request, "unfold/helpers/dialog.html", context)

    return answered


def do(
    request: HttpRequest, obj: Model | None, verb: Callable[[], Any], done: str, *, home: str
) -> HttpResponse:
    """Call the verb, show its outcome, and go back to the page on which the dialog was opened.

    `home`: the list to go to if the object no longer exists.
    """
    if obj is None:
        return gone(request, home=home)
    try:
        verb()
    except MusterError as error:
        messages.error(request, str(error))
    else:
        messages.success(request, done)
    return go_to(request, _opened_on(request) or _own_page(obj))


def gone(request: HttpRequest, *, home: str) -> HttpResponse:
    """Say that there is nothing to change, and go to the list."""
    messages.error(request, "It no longer exists.")
    return go_to(request, reverse(home))


def actor(request: HttpRequest) -> str:
    return f"user:{request.user.get_username()}"


def _opened_on(request: HttpRequest) -> str:
    """The path of the page in the browser, from htmx. A path cannot lead to another host."""
    path = urlsplit(request.headers.get("HX-Current-URL", "")).path
    return path if path.startswith(reverse("admin:index")) else ""


def _own_page(obj: Model) -> str:
    meta = obj._meta
    return reverse(f"admin:{meta.app_label}_{meta.model_name}_change", args=[obj.pk])
