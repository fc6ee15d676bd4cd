"""The newest output of an execution on its page, refreshed while it runs."""

from __future__ import annotations

from django.http import HttpResponse
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.safestring import SafeString

from orchestrator.core.admin import render
from orchestrator.core.authority import Principal
from orchestrator.core.models import Execution
from orchestrator.core.shown import output as shown

EVERY_SECONDS = 2
STOP_POLLING = 286
"""The status by which htmx ends a trigger `every`."""


def box(execution: Execution, *, seen_by: Principal) -> SafeString | str:
    """The output, which asks for itself again while the execution is open; empty for one that has
    ended and of which nothing is kept: its result has what there is."""
    is_open = not execution.is_terminal
    streams = [
        {
            "name": part.stream,
            "text": render.preformatted(part.text),
            "dropped": part.offset,
        }
        for part in shown.newest(execution, seen_by=seen_by)
    ]
    if not is_open and not streams:
        return ""
    context = {
        "streams": streams,
        "attempt": execution.attempt,
        "is_open": is_open,
        "seconds": EVERY_SECONDS,
        "url": reverse("admin:orchestrator_execution_output", args=[execution.pk]),
    }
    return render_to_string("orchestrator/admin/output.html", context)


def answer(execution: Execution | None, *, seen_by: Principal) -> HttpResponse:
    """Answer a request of the box for itself."""
    if execution is None:
        return HttpResponse(status=STOP_POLLING)
    status = STOP_POLLING if execution.is_terminal else 200
    return HttpResponse(box(execution, seen_by=seen_by), status=status)
