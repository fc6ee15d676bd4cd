"""The audit of requests and commands: what each of them changed, and what it was refused.

The authorizer reports its decisions here. What came of them is known when the request is answered:
an answer of 4xx has changed nothing, and is no event unless somebody who is known was refused.
Pages say that they did what was asked for (`changed`), as they lead to another page in any case.
What a verb writes itself, with more than a request knows, is not reported twice.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import structlog
from django.conf import settings
from django.db import Error as DatabaseError
from django.http import HttpRequest, HttpResponseBase

from orchestrator.access.audit import recording
from orchestrator.access.audit.recording import Actor, Origin, origin, record, record_soon
from orchestrator.core.authority import PAYLOADS, Decision, PermissionMissing, Place, Principal
from orchestrator.core.errors import Forbidden
from orchestrator.core.management import arguments

log = structlog.get_logger(__name__)

STRANGER = Actor("stranger", "stranger")
COMMAND = "command"
REQUEST_ID = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
HEADER = "X-Request-ID"
READING = {"GET", "HEAD", "OPTIONS"}
FACE = re.compile(r"^/?(?:(?:api/)?v1|console)/")
"""The beginning of paths and routes of the API and the console, which events leave out."""

FREQUENT = {"executions.run", "tasks.run", PAYLOADS}
"""Written soon after the request, many at once. The rows that it made name its actor, too."""

READS = ".read"
"""The end of permissions whose use is not written, unless it was refused."""

MOST_PLACES = 5
"""Of a request about a thousand packs, so many are named."""

Allowed, Denied = recording.Decision.ALLOWED, recording.Decision.DENIED


@dataclass
class Noted:
    """The facts that the audit knows of a request, or of a command, that is under way."""

    request: HttpRequest | None
    about: str = ""
    """The things that a command was asked to act on, in words."""
    principal: Principal | None = None
    required: list[str] = field(default_factory=list)
    """The permissions that it was held to, and had."""
    places: dict[str, list[str]] = field(default_factory=dict)
    """The places where it had each permission that was asked for."""
    denied: tuple[str, str] | None = None
    """The last permission that it lacked, and where."""
    has_changed: bool = False
    """It has changed something, whatever its answer says: that of a page leads to another page."""


noted: ContextVar[Noted | None] = ContextVar("audited", default=None)


def decided(decision: Decision) -> None:
    """Take a decision of the authorizer."""
    here = noted.get()
    if here is None:
        return
    here.principal = decision.principal
    if not decision.is_allowed:
        here.denied = decision.permission, _named(decision.place)
        return
    places = here.places.setdefault(decision.permission, [])
    if decision.place is not None and len(places) < MOST_PLACES:
        place = _named(decision.place)
        if place not in places:
            places.append(place)


def required(decision: Decision) -> None:
    """Take a decision that a caller was held to: without it, the request would have ended."""
    here = noted.get()
    if here is not None and decision.is_allowed and decision.permission not in here.required:
        here.required.append(decision.permission)


def contents_shown() -> tuple[str, ...]:
    """The places of which the request that is under way has asked for contents, and had them."""
    here = noted.get()
    return tuple(here.places.get(PAYLOADS, ())) if here is not None else ()


def shows_contents_of(places: Iterable[str]) -> None:
    """Say that the request that is under way shows what another one, of a caller who may do the
    same, has read of these places."""
    here = noted.get()
    if here is not None and places:
        here.places[PAYLOADS] = list(dict.fromkeys([*here.places.get(PAYLOADS, ()), *places]))


def changed() -> None:
    """Say that the request that is under way has done what it asked for."""
    here = noted.get()
    if here is not None:
        here.has_changed = True


def _named(place: Place | None) -> str:
    return "" if place is None else f"{place.about} {place.name}".strip()


# --- actors --------------------------------------------------------------------------------------


def whoever() -> Actor:
    """The caller of the request that is under way, or whoever is at the terminal."""
    here = noted.get()
    if here is None or here.request is None:
        return Actor(COMMAND, here.principal.actor if here and here.principal else arguments.user())
    if here.principal is not None and here.principal.actor:
        return of_principal(here.principal)
    user = getattr(here.request, "user", None)
    return of_user(user) if user is not None and user.is_authenticated else STRANGER


def of_principal(principal: Principal) -> Actor:
    """The actor of an event, from what the authorizer knows of a caller."""
    identity = str(getattr(principal, "identity", ""))
    id = getattr(principal, "identity_id", None)
    prefix = str(getattr(principal, "token_prefix", ""))
    kind = identity.partition(":")[0] or COMMAND
    return Actor(kind, principal.actor, "" if id is None else str(id), prefix)


def of_user(user: Any) -> Actor:
    """A person, as the actor of an event; with the name that histories have."""
    return Actor("user", f"user:{user.get_username()}", str(user.pk))


# --- commands ------------------------------------------------------------------------------------


@contextmanager
def watched_command(about: str) -> Iterator[None]:
    """Write what a command did with the permission that its verb needs, or that it was refused."""
    here = Noted(None, about=about)
    of_noted, of_explicit = noted.set(here), recording.is_told.set(False)
    failure: BaseException | None = None
    try:
        yield
    except Forbidden as error:
        here.required = []
        permission = error.permission if isinstance(error, PermissionMissing) else ""
        _write_of_command(here, permission, Denied, str(error))
        raise
    except BaseException as error:
        failure = error
        raise
    finally:
        used = [] if recording.is_told.get() else [p for p in here.required if not _is_read(p)]
        if here.places.get(PAYLOADS):
            used.append(PAYLOADS)
        # one that failed may have done a part, or all but to wait for the end
        reason = f"ended by {type(failure).__name__}" if failure else ""
        for permission in used:
            _write_of_command(here, permission, Allowed, reason, failure)
        recording.is_told.reset(of_explicit)
        noted.reset(of_noted)


def _write_of_command(
    here: Noted,
    permission: str,
    decision: str,
    reason: str,
    failure: BaseException | None = None,
) -> None:
    try:
        record(
            permission,
            actor=whoever(),
            object_kind=permission.partition(".")[0],
            object_id=here.about,
            decision=decision,
            reason=reason or ", ".join(here.places.get(permission, ())),
        )
    except DatabaseError as error:
        # a command that could not use the database either says so itself, and has done nothing
        if not isinstance(failure, DatabaseError):
            _complain(here, error, permission=permission, about=here.about)


def _complain(here: Noted, error: Exception, **facts: Any) -> None:
    """Log what could not be written: it has happened all the same."""
    log.error("audit not written", actor=whoever(), error=repr(error), **facts)


# --- requests ------------------------------------------------------------------------------------


class AuditedRequests:
    """The middleware that writes what came of a request, and gives each request an id."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        here = Noted(request)
        came_from = Origin(_request_id(request), request.META.get("REMOTE_ADDR") or "")
        of_origin, of_noted = origin.set(came_from), noted.set(here)
        of_explicit = recording.is_told.set(False)
        try:
            response = self.get_response(request)
            _write(here, request, response)
        finally:
            recording.is_told.reset(of_explicit)
            noted.reset(of_noted)
            origin.reset(of_origin)
        response[HEADER] = came_from.request_id
        return response


def _request_id(request: HttpRequest) -> str:
    """The id that the caller, or a proxy, gave the request; a new one if it has none that fits."""
    given = request.headers.get(HEADER, "")
    return given if REQUEST_ID.fullmatch(given) else uuid.uuid4().hex


def _write(here: Noted, request: HttpRequest, response: HttpResponseBase) -> None:
    try:
        for permission, place, decision in list(_events(here, request, response)):
            _write_one(request, response, permission, place, decision)
    except DatabaseError as error:
        path, status = request.path, response.status_code
        _complain(here, error, permissions=here.required, path=path, status=status)


def _events(
    here: Noted, request: HttpRequest, response: HttpResponseBase
) -> Iterator[tuple[str, str, str]]:
    """Permission, place and decision of each event that a request is."""
    status = response.status_code
    if status == 403:
        # strangers are refused by the thousand, and could fill the table
        if whoever() is not STRANGER:
            permission, place = here.denied or (_route(request), "")
            yield permission, place, Denied
        return
    if request.method in READING:
        if here.places.get(PAYLOADS) and status < 400:
            yield PAYLOADS, ", ".join(here.places[PAYLOADS]), Allowed
        return
    is_change = not 300 <= status < 500 and request.path.startswith(settings.API_PATHS)
    if (is_change or here.has_changed) and not recording.is_told.get():
        for permission in here.required or [_route(request)]:
            if not _is_read(permission):
                yield permission, ", ".join(here.places.get(permission, ())), Allowed


def _write_one(
    request: HttpRequest, response: HttpResponseBase, permission: str, place: str, decision: str
) -> None:
    kind, id = _object(request, response)
    is_frequent = permission in FREQUENT and decision == Allowed
    write = record_soon if is_frequent else record
    outcome = f" (answered {response.status_code})" if response.status_code >= 500 else ""
    write(
        permission,
        actor=whoever(),
        object_kind=kind,
        object_id=id,
        decision=decision,
        reason=f"{place}{outcome}".strip(),
    )


def _object(request: HttpRequest, response: HttpResponseBase) -> tuple[str, str]:
    """The noun of the path, and the id of the row in it, or of the row that was made."""
    kind = FACE.sub("", request.path).strip("/").partition("/")[0] or "console"
    match = request.resolver_match
    named = "/".join(str(value) for value in (match.kwargs if match else {}).values())
    return kind, named or response.headers.get("Location", "").rpartition("/")[2]


def _route(request: HttpRequest) -> str:
    """The method and the route, for what no permission was asked for."""
    match = request.resolver_match
    return f"{request.method} /{FACE.sub('', match.route or '') if match else ''}"


def _is_read(permission: str) -> bool:
    return permission.endswith(READS)
