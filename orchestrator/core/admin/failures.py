"""Pages for what went wrong: the database is away, or a fault of ours. They need no database."""

from __future__ import annotations

import sys

import structlog
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string

from orchestrator.core import database

log = structlog.get_logger(__name__)

RETRY_SECONDS = 5


def server_error(request: HttpRequest) -> HttpResponse:
    """Django's handler of what nobody caught: 503 if the database is away, otherwise 500."""
    error = sys.exc_info()[1]
    if isinstance(error, Exception) and database.is_outage(error):
        log.error("database unavailable", error=str(error))
        page = render_to_string("orchestrator/admin/unavailable.html", {"seconds": RETRY_SECONDS})
        return HttpResponse(page, status=503, headers={"Retry-After": str(RETRY_SECONDS)})
    return HttpResponse(render_to_string("orchestrator/admin/fault.html"), status=500)
