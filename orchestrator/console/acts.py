"""The common part of acts: a dialog that asks for the reason, and the form that it sends.

Each act calls the function that the API and the admin call, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponseBase, HttpResponseRedirect
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_POST

from orchestrator.access import audit
from orchestrator.console import access
from orchestrator.console.access import View
from orchestrator.console.look import Look
from orchestrator.core.authority import PermissionMissing
from orchestrator.core.errors import MusterError, NotFound

REASON_MAX = 200


class ReasonMissing(MusterError):
    """An act was sent without its reason."""


@dataclass(frozen=True)
class Dialog:
    """An act that the user may do, as `dialog.html` asks about it."""

    id: str
    """Of the dialog; the address may open it: `#drain`."""
    label: str
    """On the button that opens it."""
    button: str
    """On the button that does it: the verb, and what it is done to."""
    question: str
    explanation: str
    url: str
    hidden: Mapping[str, str] = field(default_factory=dict)
    """The values that the form sends besides the reason."""
    asks: str = "Reason"
    """The label of what is asked, and required; empty for nothing."""
    chooses: str = ""
    """The field in which one of `choices` is chosen; a button may open the dialog with one that is
    chosen already, see `data-picks`."""
    choices: Sequence[tuple[str, str]] = ()
    """The values that the form sends, each with what people read."""


@dataclass(frozen=True)
class Done:
    """An act that succeeded: what is said of it, and the page that follows."""

    text: str
    url: str


def verb(function: Callable[..., Done]) -> View:
    """Decorate what a form does. An error is said on the page that the form was on."""

    @require_POST
    @access.staff_only
    @wraps(function)
    def view(request: HttpRequest, *args: Any, **keywords: Any) -> HttpResponseBase:
        try:
            done = function(Look.of(request), request, *args, **keywords)
        except PermissionMissing as missing:
            return access.refused(request, str(missing), 403)
        except NotFound as error:
            return access.refused(request, str(error), 404)
        except MusterError as error:
            messages.error(request, str(error))
            return HttpResponseRedirect(page_of(request))
        audit.changed()
        messages.success(request, done.text)
        return HttpResponseRedirect(done.url)

    return view


def reason(request: HttpRequest) -> str:
    """The reason that the form has. Raises ReasonMissing."""
    given = request.POST.get("reason", "").strip()
    if not given or len(given) > REASON_MAX or "\0" in given:
        raise ReasonMissing(f"A reason of 1 to {REASON_MAX} characters is needed.")
    return given


def page_of(request: HttpRequest) -> str:
    """The page that the form was on; of this console, whatever the form says."""
    url = request.POST.get("back", "")
    is_ours = url_has_allowed_host_and_scheme(url, allowed_hosts=None)
    return url if is_ours and url.startswith("/") else reverse("console:now")
