"""Pages for what went wrong: the database is away, a fault of ours, an address without a page.

They need no database. What is not below the console gets the answers that it had.
"""

from __future__ import annotations

import sys

import structlog
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.template.loader import render_to_string
from django.urls import reverse
from django.views import defaults

from orchestrator.access.audit.recording import origin
from orchestrator.console import access, acts, display, outage
from orchestrator.core import database
from orchestrator.core.admin import failures

log = structlog.get_logger(__name__)

RETRY_SECONDS = 5


def server_error(request: HttpRequest) -> HttpResponse:
    """Django's handler of what nobody caught: 503 if the database is away, otherwise 500."""
    error = sys.exc_info()[1]
    if not _is_ours(request):
        return failures.server_error(request)
    if isinstance(error, Exception) and database.is_outage(error):
        log.error("database unavailable", error=str(error))
        return _unavailable(request)
    return _fault(request, error)


def not_found(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    """Django's handler of addresses without a page."""
    if not _is_ours(request):
        return defaults.page_not_found(request, exception)
    return access.refused(request, f"There is no page at {request.path[:200]}", 404)


def _is_ours(request: HttpRequest) -> bool:
    return request.path_info.startswith(reverse("console:now"))


def _unavailable(request: HttpRequest) -> HttpResponse:
    since = outage.began()
    context = {"since": since, "again": _again(request), "was_sent": request.method == "POST"}
    response = _page(request, "unavailable", 503, context | {"seconds": RETRY_SECONDS})
    response["Retry-After"] = str(RETRY_SECONDS)
    return response


def _fault(request: HttpRequest, error: BaseException | None) -> HttpResponse:
    id = origin.get().request_id
    log.error("page failed", request_id=id, path=request.path, error=repr(error))
    context = {"id": id, "again": _again(request), "was_sent": request.method == "POST"}
    return _page(request, "fault", 500, context)


def _again(request: HttpRequest) -> str:
    """The address at which one goes on: the same one, or that of the page with the form that was
    sent."""
    return acts.page_of(request) if request.method == "POST" else request.get_full_path()


def _page(request: HttpRequest, name: str, status: int, context: access.Context) -> HttpResponse:
    with display.applied(request) as chosen:
        # without the request: its user is in the database
        text = render_to_string(f"console/{name}.html", context | {"display": chosen})
    return HttpResponse(text, status=status)
