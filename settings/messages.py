"""Messages of one page to the next, for pages."""

from __future__ import annotations

from django.conf import settings
from django.contrib.messages.middleware import MessageMiddleware
from django.http import HttpRequest


class MessagesOfPages(MessageMiddleware):
    """Leaves out the API, whose callers see none: to prepare the signature of a cookie for them
    took a fifth of the time that Django itself takes for a request."""

    def process_request(self, request: HttpRequest) -> None:
        if not request.path_info.startswith(settings.API_PATHS):
            super().process_request(request)
