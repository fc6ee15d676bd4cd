"""The permission to see a page, and what every page has around it."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.template.loader import render_to_string
from django.urls import reverse

from orchestrator.access import audit
from orchestrator.console import attention, display, kept, navigation, outage
from orchestrator.console.look import Look
from orchestrator.core.authority import PermissionMissing
from orchestrator.core.errors import NotFound

Context = dict[str, Any]
PageFunction = Callable[..., "Context | HttpResponseBase"]
View = Callable[..., HttpResponseBase]

LIVE = "X-Live"
"""The header of a request for the live part of a page."""


def staff_only(view: View) -> View:
    """Let in whoever the admin lets in; others log in first."""

    @wraps(view)
    def guarded(request: HttpRequest, *args: Any, **keywords: Any) -> HttpResponseBase:
        user = request.user
        if user.is_authenticated:
            outage.is_over()  # the database knew who it is
        if user.is_active and user.is_staff:
            return view(request, *args, **keywords)
        if user.is_authenticated:
            return refused(request, "The console is for staff.", 403)
        if LIVE in request.headers:
            return HttpResponse("Your session has ended", status=401)
        return redirect_to_login(request.get_full_path(), reverse("admin:login"))

    return guarded


def page(
    template: str, *, needs: str, topics: str, is_alike: bool = False
) -> Callable[[PageFunction], View]:
    """Decorate the function that returns what a page shows.

    `needs`: the permission, or empty for what all staff may see. `topics`: what the page is
    refreshed for, see `live`. `is_alike`: whoever may do the same sees the same; its live part is
    made once for all of them.
    """

    def decorate(function: PageFunction) -> View:
        @staff_only
        @wraps(function)
        def view(request: HttpRequest, *args: Any, **keywords: Any) -> HttpResponseBase:
            look = Look.of(request)

            def answer() -> HttpResponseBase:
                context = function(look, request, *args, **keywords)
                if isinstance(context, HttpResponseBase):  # a form of the page was sent, and done
                    return context
                around = _around(look, request, topics)
                path = f"console/{template}.html"
                return _answer(render_to_string(path, around | context, request))

            with display.applied(request):
                try:
                    if needs and not look.may(needs):
                        raise PermissionMissing(needs, "This page")
                    if is_alike and LIVE in request.headers:
                        return _answer_of_all(look, request, answer)
                    return answer()
                except PermissionMissing as missing:
                    return refused(request, str(missing), 403)
                except NotFound as error:
                    return refused(request, str(error), 404)

        view.needs = needs  # type: ignore[attr-defined]
        return view

    return decorate


def _around(look: Look, request: HttpRequest, topics: str) -> Context:
    return {
        "look": look,
        "topics": topics,
        "attention": attention.items(look),
        "display": display.of(request),
        "entries": navigation.entries(look),
        "is_live": LIVE in request.headers,
    }


def _answer_of_all(
    look: Look, request: HttpRequest, answer: Callable[[], HttpResponseBase]
) -> HttpResponseBase:
    """As it was made a moment ago for whoever may do the same, and looks in the same time zone."""
    sight = look.sight
    if sight is None:
        return answer()
    name = f"{kept.ANSWERS}/{sight}/{display.of(request).zone}/{request.get_full_path()}"

    def read() -> tuple[bytes, tuple[str, ...]]:
        response = answer()
        assert isinstance(response, HttpResponse), "a page that is alike for all takes no form"
        return response.content, audit.contents_shown()

    content, places = kept.for_all(name, read, seconds=kept.ANSWER_SECONDS)
    audit.shows_contents_of(places)
    return _answer(content)


def _answer(content: str | bytes) -> HttpResponse:
    return HttpResponse(content, headers={"Vary": f"{LIVE}, Cookie"})


def refused(request: HttpRequest, text: str, status: int) -> HttpResponse:
    context = {"text": text, "status": status, "display": display.of(request)}
    return render(request, "console/refused.html", context, status=status)
