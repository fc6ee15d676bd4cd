"""Who is calling. How that is known is the business of the setting `API_AUTHENTICATION`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from django.conf import settings
from django.http import HttpRequest
from django.utils.module_loading import import_string


@dataclass(frozen=True)
class Caller:
    """The actor of whatever a request does, and when it came, by the database's clock."""

    name: str
    now: datetime


class AuthenticatedRequest(HttpRequest):
    """A request of which it is known who sent it."""

    auth: Caller


def authentication() -> Callable[[HttpRequest], Caller]:
    """The class that the setting names: called with a request, it returns the caller or refuses."""
    made: Callable[[HttpRequest], Caller] = import_string(settings.API_AUTHENTICATION)()
    return made
