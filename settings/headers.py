"""Headers of every answer: what a browser may load and run, and that it keeps no answer of the API.

Django has a middleware for such a policy from 6.0 on; this one is for the release before it.
"""

from __future__ import annotations

from collections.abc import Callable

from django.conf import settings
from django.http import HttpRequest, HttpResponseBase

ADMIN, CONSOLE = "/admin/", "/console/"


def _for_pages(scripts: str) -> str:
    """Nothing from another host, no script in a page, no frame around it. As no page has a script
    of its own in it, none needs a nonce."""
    return "; ".join(
        [
            "default-src 'self'",
            f"script-src {scripts}",
            # the admin writes its colours into the page, and bars have their width as a style
            "style-src 'self' 'unsafe-inline'",
            "img-src 'self' data:",
            "object-src 'none'",
            "base-uri 'none'",
            "form-action 'self'",
            "frame-ancestors 'none'",
        ]
    )


PAGES = _for_pages("'self'")

ADMIN_PAGES = _for_pages("'self' 'unsafe-eval'")
"""The admin's Alpine evaluates the expressions in its markup."""

CONSOLE_PAGES = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    ]
)
"""The console's pages have no style in them either."""

DATA = "default-src 'none'; frame-ancestors 'none'"
"""For everything else: it is no page, whatever a browser takes it for."""

UNCACHED = (*settings.API_PATHS, CONSOLE, "/health/", "/metrics")


class SafeHeaders:
    """Sets the policy, and `no-store` on answers with data."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self.get_response(request)
        response.headers.setdefault("Content-Security-Policy", _policy(request, response))
        if request.path_info.startswith(UNCACHED):
            response.headers["Cache-Control"] = "no-store"
        return response


def _policy(request: HttpRequest, response: HttpResponseBase) -> str:
    if not response.get("Content-Type", "").startswith("text/html"):
        return DATA
    if request.path_info.startswith(CONSOLE):
        return CONSOLE_PAGES
    return ADMIN_PAGES if request.path_info.startswith(ADMIN) else PAGES
