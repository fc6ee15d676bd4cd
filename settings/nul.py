"""Addresses that no database can look up."""

from __future__ import annotations

from collections.abc import Callable

from django.conf import settings
from django.core.exceptions import BadRequest
from django.http import HttpRequest, HttpResponseBase


class WithoutNul:
    """Refuses a NUL character in the address of a page: PostgreSQL has no text with one, and would
    answer a query for it with an error. The API refuses each of its parameters itself."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if not request.path_info.startswith(settings.API_PATHS) and _has_nul(request):
            raise BadRequest("The address has a NUL character")
        return self.get_response(request)


def _has_nul(request: HttpRequest) -> bool:
    texts = [text for name, values in request.GET.lists() for text in (name, *values)]
    return any("\0" in text for text in (request.path_info, *texts))
