"""The caller of a request, whom the setting `API_AUTHENTICATION` identifies, and the permission
that each operation needs."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import cache

from django.conf import settings
from django.http import HttpRequest
from django.utils.module_loading import import_string

from orchestrator.core import authority
from orchestrator.core.api import limits
from orchestrator.core.authority import Principal
from orchestrator.core.errors import Forbidden

Identify = Callable[[HttpRequest], "Caller"]

FORWARDED = ("HTTP_FORWARDED", "HTTP_X_FORWARDED_FOR", "HTTP_X_REAL_IP", "HTTP_VIA")
"""Headers that a proxy adds."""


@dataclass(frozen=True)
class Caller:
    """The sender of a request, and the time of its arrival, by the database's clock."""

    principal: Principal
    now: datetime

    @property
    def name(self) -> str:
        """The actor in histories."""
        return self.principal.actor


class AuthenticatedRequest(HttpRequest):
    """A request whose caller is known."""

    auth: Caller


def address_of(request: HttpRequest) -> str:
    """The address of the caller; empty if it is that of a proxy on this host."""
    address: str = request.META.get("REMOTE_ADDR", "")
    if is_loopback(address) and any(name in request.META for name in FORWARDED):
        return ""
    return address


def is_loopback(address: str) -> bool:
    """Return True for an address of this host."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def authentication() -> Identify:
    """The object of the setting's class: called with a request, it returns the caller or
    refuses."""
    return _made(settings.API_AUTHENTICATION)


@cache
def _made(path: str) -> Identify:
    identify: Identify = import_string(path)()
    return identify


class Needs:
    """The `auth` of an operation: identifies the caller and requires a permission, before the body
    is looked at. The operation itself asks about the rows that it touches."""

    def __init__(self, permission: str) -> None:
        self.permission = permission

    def __call__(self, request: HttpRequest) -> Caller:
        caller = authentication()(request)
        limits.require_room(caller.principal)
        authority.require(caller.principal, self.permission)
        return caller


class Open:
    """The `auth` of an operation that strangers may call, and the reason."""

    def __init__(self, why: str) -> None:
        self.why = why

    def __call__(self, request: HttpRequest) -> bool:
        return True


class Undeclared(Needs):
    """The `auth` of an operation that says nothing of permissions: nobody may call it."""

    def __init__(self) -> None:
        super().__init__("")

    def __call__(self, request: HttpRequest) -> Caller:
        authentication()(request)
        raise Forbidden("No permission is declared for this operation, so nobody has it")


def needs(permission: str) -> Needs:
    """Declare what an operation needs: `@router.get("", auth=needs("executions.read"))`."""
    return Needs(permission)


def open_because(why: str) -> Open:
    """Declare that an operation needs no permission, and why not."""
    return Open(why)
