"""Pages and their files, compressed: a tenth of the bytes.

The API's answers are not: most are small, and its callers are near.
"""

from __future__ import annotations

from django.conf import settings
from django.http import HttpRequest, HttpResponseBase
from django.middleware.gzip import GZipMiddleware

ADMIN = "/admin/"


class GzippedPages(GZipMiddleware):
    """Compresses what the admin and the static files answer. Django adds bytes of random number,
    so that the length tells nothing about a secret in the page."""

    def process_response(
        self, request: HttpRequest, response: HttpResponseBase
    ) -> HttpResponseBase:
        if not request.path_info.startswith((ADMIN, settings.STATIC_URL)):
            return response
        return super().process_response(request, response)
