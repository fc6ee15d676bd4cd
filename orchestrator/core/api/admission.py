"""The check of a caller who sends a body in pieces, named by the setting `HTTP_REFUSAL`."""

from __future__ import annotations

from django.conf import settings
from django.http import HttpRequest, HttpResponse

from orchestrator.core.api import api
from orchestrator.core.api.access import authentication


def refusal(request: HttpRequest) -> HttpResponse | None:
    """Return the answer to an unknown caller of the API, before the body is read; None if known.

    Other pages identify their callers by a session, and answer themselves.
    """
    if not request.path.startswith(settings.API_PATHS):
        return None
    try:
        authentication()(request)
    except Exception as error:  # noqa: BLE001 - answered like every error of the API
        return api.on_exception(request, error)
    return None
