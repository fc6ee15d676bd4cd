"""`GET /metrics`: for Prometheus."""

from __future__ import annotations

import ipaddress

from django.conf import settings
from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_safe

from orchestrator.core.api import problems
from orchestrator.core.api.access import authentication
from orchestrator.core.api.problems import Problem
from orchestrator.core.metrics import exposition

FORWARDED = ("HTTP_FORWARDED", "HTTP_X_FORWARDED_FOR", "HTTP_X_REAL_IP", "HTTP_VIA")
"""Headers that a proxy adds: who asks through one is not on this host."""


@csrf_exempt
@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    """All metrics of the installation, whichever process answers."""
    try:
        if not _is_free_to(request):
            authentication()(request)
        content, content_type = exposition.rendered(request.headers.get("Accept", ""))
    except Problem as problem:
        return problems.respond(request, problem)
    except (InterfaceError, OperationalError):
        return problems.respond(request, problems.database_unavailable())
    return HttpResponse(content, content_type=content_type)


def _is_free_to(request: HttpRequest) -> bool:
    """Whether this caller needs no token."""
    access = settings.MUSTER.metrics_access
    if access == "anyone":
        return True
    return access == "loopback" and _is_local(request)


def _is_local(request: HttpRequest) -> bool:
    if any(name in request.META for name in FORWARDED):
        return False
    try:
        return ipaddress.ip_address(request.META.get("REMOTE_ADDR", "")).is_loopback
    except ValueError:
        return False


urlpatterns = [path("", metrics, name="metrics")]
