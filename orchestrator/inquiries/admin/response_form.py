"""The form of a response with the widgets of the admin."""

from __future__ import annotations

from functools import partial

from unfold.widgets import (
    UnfoldAdminPasswordWidget,
    UnfoldAdminSelectWidget,
    UnfoldAdminTextareaWidget,
    UnfoldAdminTextInputWidget,
)

from orchestrator.inquiries import response_form
from orchestrator.inquiries.response_form import Widgets


class ResponseForm(response_form.ResponseForm):
    """A field for each property of the schema; without any, one for all of it as JSON."""

    widgets = Widgets(
        text=UnfoldAdminTextInputWidget,
        long_text=UnfoldAdminTextareaWidget,
        secret=UnfoldAdminPasswordWidget,
        choice=UnfoldAdminSelectWidget,
        json=partial(UnfoldAdminTextareaWidget, attrs={"rows": 6, "class": "m-code"}),
    )
