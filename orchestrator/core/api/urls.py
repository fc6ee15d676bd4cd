"""The API's URLs, for `include`: every path below them gets an answer of the API, at `/api/v1` and
at `/v1`."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseNotAllowed
from django.urls import URLPattern, URLResolver, include, path, re_path
from django.views import defaults
from django.views.decorators.csrf import csrf_exempt
from django.views.generic import RedirectView
from ninja import NinjaAPI

from orchestrator.core.api import api, plain_api, problems

View = Callable[..., HttpResponseBase]

ASKED_OFTEN = ("executions", "hooks/", "events")
"""The beginnings of the paths to look at first: the last of all takes 50 us longer to find."""


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
    if not request.path.startswith(settings.API_PATHS):
        return defaults.bad_request(request, exception)
    detail = f"The server does not answer such requests: {type(exception).__name__}"
    return problems.respond(request, problems.plain(400, detail))


def _of(served: NinjaAPI) -> list[URLPattern | URLResolver]:
    patterns, app_name, namespace = served.urls
    patterns.sort(key=lambda each: not str(each.pattern).startswith(ASKED_OFTEN))
    return [path("", (_guard(patterns), app_name, namespace)), re_path("", _no_such_route)]


_docs = RedirectView.as_view(pattern_name=f"{api.urls_namespace}:openapi-view")
urlpatterns = [
    path("api/v1/", include([path("", _docs, name="api-index"), *_of(api)])),
    path("v1/", include(_of(plain_api))),
]
