"""`GET /health/live` and `/health/ready`: the API's checks, at the paths that probes expect."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponseBase
from django.urls import path, resolve
from django.views.decorators.csrf import csrf_exempt


@csrf_exempt
def probe(request: HttpRequest, name: str) -> HttpResponseBase:
    route = resolve(f"/api/v1/health/{name}")
    response: HttpResponseBase = route.func(request, *route.args, **route.kwargs)
    return response


urlpatterns = [
    path("live", probe, {"name": "live"}, name="live"),
    path("ready", probe, {"name": "ready"}, name="ready"),
]
