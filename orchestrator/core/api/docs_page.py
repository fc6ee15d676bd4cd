"""The page that shows the API's document, without files from another host, and its readers."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.conf import settings
from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from ninja.openapi.docs import ABS_TPL_PATH, Swagger

from orchestrator.core.api import problems
from orchestrator.core.api.access import authentication
from orchestrator.core.api.problems import Problem

View = Callable[..., HttpResponse]


class DocsPage(Swagger):
    """Swagger's page from the installed package.

    ninja's own page loads its scripts from another host unless ninja is an installed app, and then
    every service would import it: a fifth of the time that a start takes.
    """

    template_cdn = str(ABS_TPL_PATH / "swagger.html")


def for_known_callers(view: View) -> View:
    """Let a view answer callers with a token, and users of the admin; or anyone, if the setting
    says so. A browser is sent to the login page."""

    @wraps(view)
    def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if settings.MUSTER.docs_access == "known" and not _is_staff(request):
            try:
                authentication()(request)
            except Problem as problem:
                if "text/html" in request.headers.get("Accept", ""):
                    return redirect_to_login(request.get_full_path(), reverse("admin:login"))
                return problems.respond(request, problem)
        return view(request, *args, **kwargs)

    return guarded


def _is_staff(request: HttpRequest) -> bool:
    return bool(request.user.is_active and request.user.is_staff)
