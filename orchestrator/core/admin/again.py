"""The form that runs executions again, and what it does."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from django import forms
from django.http import HttpRequest
from unfold.forms import BaseDialogForm
from unfold.widgets import UnfoldAdminTextInputWidget

from orchestrator.core import authority, clock, executions
from orchestrator.core.admin import dialogs
from orchestrator.core.models import Execution
from orchestrator.core.models.executions import REQUEST_REASON_MAX


class AgainForm(BaseDialogForm):
    """A reason, and a token: sent twice, the form makes one execution."""

    reason = forms.CharField(
        required=False,
        max_length=REQUEST_REASON_MAX,
        widget=UnfoldAdminTextInputWidget(attrs={"autofocus": ""}),
        help_text="Kept with the new execution.",
    )
    token = forms.CharField(max_length=36, widget=forms.HiddenInput, initial=uuid4)


def run(request: HttpRequest, execution: Execution, form: Any) -> Execution:
    """Request the execution once more, for the user; returns the new one."""
    return executions.run_again(
        execution,
        token=form.cleaned_data["token"],
        by=dialogs.actor(request),
        principal=authority.of_request(request),
        now=clock.now(),
        reason=form.cleaned_data["reason"],
    )
