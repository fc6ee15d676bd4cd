"""`GET /metrics`: for Prometheus."""

from __future__ import annotations

from django.conf import settings
from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_safe

from orchestrator.core import authority, shared_cache
from orchestrator.core.api import problems
from orchestrator.core.api.access import address_of, authentication, is_loopback
from orchestrator.core.api.problems import Problem
from orchestrator.core.errors import Forbidden
from orchestrator.core.metrics import exposition

KEPT_SECONDS = 5
"""A value of a metric may be this old, where there is a Redis."""


@csrf_exempt
@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    """Answer with all metrics of the installation, in any process."""
    try:
        if not _is_free_to(request):
            authority.require(authentication()(request).principal, "metrics.read")
        content, content_type = _rendered(request.headers.get("Accept", ""))
    except Problem as problem:
        return problems.respond(request, problem)
    except Forbidden as error:
        return problems.respond(request, problems.forbidden(str(error)))
    except (InterfaceError, OperationalError):
        return problems.respond(request, problems.database_unavailable())
    return HttpResponse(content, content_type=content_type)


def _rendered(accept: str) -> list[str]:
    """The metrics and their content type, for several scrapers at most a few seconds old."""

    def render() -> list[str]:
        content, content_type = exposition.rendered(accept)
        return [content.decode(), content_type]

    return shared_cache.kept(f"metrics as {accept}", render, seconds=KEPT_SECONDS)


def _is_free_to(request: HttpRequest) -> bool:
    """Return True if this caller needs no token."""
    access = settings.MUSTER.metrics_access
    if access == "anyone":
        return True
    return access == "loopback" and is_loopback(address_of(request))


urlpatterns = [path("", metrics, name="metrics")]
