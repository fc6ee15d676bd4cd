"""The check of a caller who sends a body in pieces, named by the setting `HTTP_REFUSAL`."""

from __future__ import annotations

from functools import cache

from django.conf import settings
from django.http import HttpRequest, HttpResponse

from orchestrator.core import frame
from orchestrator.core.api import api
from orchestrator.core.api.access import authentication
from orchestrator.core.frame import Named


@cache
def _doors() -> dict[str, Named]:
    doors = frame.collect(lambda app: app.open_doors)
    return {f"{settings.API_PATHS[0]}v1{door.prefix}": door.admit for door in doors}


def _door(path: str) -> Named | None:
    """The function that admits strangers there, if there is one."""
    return next((admit for prefix, admit in _doors().items() if path.startswith(prefix)), None)


def is_open(path: str) -> bool:
    """Return True for a path at which strangers may send. Named by `HTTP_OPEN_TO_STRANGERS`."""
    return _door(path) is not None


def refusal(request: HttpRequest) -> HttpResponse | None:
    """Return the answer to an unknown caller of the API, before the body is read; None if known.

    Other pages identify their callers by a session, and answer themselves.
    """
    if not request.path.startswith(settings.API_PATHS):
        return None
    try:
        (_door(request.path) or authentication())(request)
    except Exception as error:  # noqa: BLE001 - answered like every error of the API
        return api.on_exception(request, error)
    return None
