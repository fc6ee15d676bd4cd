"""The API's URLs, for `include`: every path below them gets an answer of the API."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseNotAllowed
from django.urls import URLPattern, URLResolver, path, re_path
from django.views import defaults
from django.views.decorators.csrf import csrf_exempt
from django.views.generic import RedirectView

from orchestrator.core.api import api, problems

View = Callable[..., HttpResponseBase]


def _as_the_api_answers(view: View) -> View:
    """Answer HEAD like GET, and a wrong method with problem+json."""

    @wraps(view)
    def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if request.method == "HEAD":
            request.method = "GET"  # the server leaves out the body
        response = view(request, *args, **kwargs)
        if isinstance(response, HttpResponseNotAllowed):
            allow = response["Allow"]
            detail = f"{request.method} is not possible here; possible: {allow}"
            return problems.respond(request, problems.plain(405, detail, Allow=allow))
        return response

    return csrf_exempt(guarded)


def _guard(patterns: list[URLPattern | URLResolver]) -> list[URLPattern | URLResolver]:
    for pattern in patterns:
        if isinstance(pattern, URLPattern):
            pattern.callback = _as_the_api_answers(pattern.callback)
    return patterns


@csrf_exempt
def _no_such_route(request: HttpRequest) -> HttpResponse:
    detail = f"The API has no {request.path[:200]}; its routes are at /api/v1/docs"
    return problems.respond(request, problems.not_found(detail))


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Answer a request that was refused before routing, for example for a wrong Host."""
    if not request.path.startswith("/api/"):
        return defaults.bad_request(request, exception)
    detail = f"The server does not answer such requests: {type(exception).__name__}"
    return problems.respond(request, problems.plain(400, detail))


_patterns, _app_name, _namespace = api.urls

urlpatterns = [
    path("", RedirectView.as_view(pattern_name=f"{_namespace}:openapi-view"), name="api-index"),
    path("", (_guard(_patterns), _app_name, _namespace)),
    re_path("", _no_such_route),
]
