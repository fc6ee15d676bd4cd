"""Pages and their files, compressed: a tenth of the bytes.

The API's answers are not: most are small, and its callers are near.
"""

from __future__ import annotations

from django.conf import settings
from django.http import HttpRequest, HttpResponseBase
from django.middleware.gzip import GZipMiddleware

PAGES = ("/admin/", "/console/")
STREAM = "text/event-stream"
"""Its lines are few, and must not wait for each other."""


class GzippedPages(GZipMiddleware):
    """Compresses what the console, the admin and the static files answer. Django adds bytes of
    random number, so that the length tells nothing about a secret in the page."""

    def process_response(
        self, request: HttpRequest, response: HttpResponseBase
    ) -> HttpResponseBase:
        is_page = request.path_info.startswith((*PAGES, settings.STATIC_URL))
        if not is_page or response.get("Content-Type") == STREAM:
            return response
        return super().process_response(request, response)
