"""The look that a person wants pages to have: theme, density, time zone. Cookies of the browser say
it.

The time zone is the installation's, UTC, or the browser's. The cookie has its name, so every time
on a page is right as it comes, with scripts and without.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from django.conf import settings
from django.http import HttpRequest
from django.utils import timezone

THEMES = ("light", "dark")
DENSITIES = ("compact",)
UTC = "UTC"
OF_BROWSER = "browser~"
"""The beginning of the cookie of who wants the browser's zone; its name follows."""
ZONE = re.compile(r"[A-Za-z][\w+-]*(/[\w+-]+)*", re.ASCII)
LONGEST = 64


@dataclass(frozen=True)
class Display:
    """The choices that were made; empty for those that were not."""

    theme: str
    density: str
    choice: str
    """Of the time zone: `browser`, `UTC`, or empty for the installation's."""
    zone: str
    """The name of the zone that the page has."""
    of_installation: str = settings.TIME_ZONE


def of(request: HttpRequest) -> Display:
    """The choices that the cookies say. What they cannot say counts as nothing."""
    cookie = request.COOKIES.get("zone", "")
    zone = _known(cookie.removeprefix(OF_BROWSER))
    choice = "browser" if cookie.startswith(OF_BROWSER) else cookie
    return Display(
        theme=_one_of(request.COOKIES.get("theme", ""), THEMES),
        density=_one_of(request.COOKIES.get("density", ""), DENSITIES),
        choice=choice if zone is not None and choice in ("browser", UTC) else "",
        zone=str(zone or settings.TIME_ZONE),
    )


@contextmanager
def applied(request: HttpRequest) -> Iterator[Display]:
    """Have all times that are drawn meanwhile be in the chosen zone."""
    chosen = of(request)
    with timezone.override(chosen.zone):
        yield chosen


def _one_of(text: str, known: tuple[str, ...]) -> str:
    return text if text in known else ""


@lru_cache(maxsize=500)
def _known(name: str) -> ZoneInfo | None:
    """The zone of this name, if there is one."""
    if len(name) > LONGEST or not ZONE.fullmatch(name):
        return None
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):  # `Asia` is a directory
        return None
