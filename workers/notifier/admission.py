"""The admission of clients: a token in a header, or a ticket; and of a browser, from where its page
is."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from io import BytesIO
from typing import Any
from urllib.parse import parse_qs, urlsplit

from django.conf import settings
from django.core.exceptions import DisallowedHost
from django.core.handlers.asgi import ASGIRequest
from django.db import close_old_connections
from django.http import HttpRequest
from django.utils.http import is_same_domain

from orchestrator.core import clock
from orchestrator.core.api import access, limits, problems
from orchestrator.core.authority import Principal
from orchestrator.core.errors import Forbidden
from orchestrator.notifications import tickets
from workers.notifier.credentials import Credential

LONGEST_QUERY = 8_192
MOST_FIELDS = 100


class Visit:
    """A request for a stream, as both doors see it."""

    def __init__(self, scope: Mapping[str, Any]) -> None:
        self.headers: dict[str, str] = {
            name.decode("latin-1").lower(): value.decode("latin-1")
            for name, value in scope["headers"]
        }
        self._scope = scope

    @cached_property
    def query(self) -> dict[str, list[str]]:
        """Its parameters. Raises Problem."""
        text = self._scope.get("query_string", b"").decode("latin-1")
        try:
            return parse_qs(
                text[:LONGEST_QUERY], keep_blank_values=True, max_num_fields=MOST_FIELDS
            )
        except ValueError:
            raise problems.plain(400, f"Expected at most {MOST_FIELDS} parameters") from None

    def values(self, name: str) -> list[str]:
        return self.query.get(name, [])

    def one(self, name: str) -> str:
        return next(iter(self.values(name)), "")

    def request(self, authorization: str) -> HttpRequest:
        """The request that the API's authentication looks at: the same headers and the same
        address."""
        kept = [(n, v) for n, v in self._scope["headers"] if n.lower() != b"authorization"]
        headers = [*kept, (b"authorization", authorization.encode("latin-1"))]
        scope = {**self._scope, "type": "http", "method": "GET", "headers": headers}
        return ASGIRequest(scope, BytesIO())

    @property
    def origin(self) -> str:
        return self.headers.get("origin", "")

    def is_from_here(self) -> bool:
        """Return True unless it comes from a page of another host, that is not trusted. What sends
        no Origin is no browser, or a page of this host."""
        if not self.origin:
            return True
        try:
            page = urlsplit(self.origin)
        except ValueError:
            return False
        if page.netloc and page.netloc == self.headers.get("host"):
            return True
        return any(_is_like(page, urlsplit(each)) for each in settings.CSRF_TRUSTED_ORIGINS)


def _is_like(page: Any, trusted: Any) -> bool:
    """`https://*.example.org` trusts all below it, as in Django."""
    return page.scheme == trusted.scheme and is_same_domain(
        page.netloc, trusted.netloc.removeprefix("*")
    )


def admit(visit: Visit) -> Credential:
    """Return the credential of a client, which is good now. Runs in a thread. Raises Problem, and
    the database's errors."""
    # before the first statement: this thread may have a connection that has died since
    close_old_connections()
    if not visit.is_from_here():
        raise problems.forbidden(
            f"The Origin {visit.origin!r:.100} is not this host, and not in CSRF_TRUSTED_ORIGINS"
        )
    authorization = _authorization(visit)
    request = visit.request(authorization)
    try:
        request.get_host()
    except DisallowedHost:
        raise problems.plain(400, "The Host header is not in ALLOWED_HOSTS") from None

    def identify() -> Principal:
        return access.authentication()(request).principal

    credential = Credential((authorization, access.address_of(request)), identify)
    try:
        credential.ask()
    except Forbidden as refused:
        raise problems.forbidden(str(refused)) from None
    limits.require_room(credential.principal)
    return credential


def _authorization(visit: Visit) -> str:
    if visit.one("token") or visit.one("access_token"):
        raise problems.plain(
            400, "A token never belongs in a URL: send a header, or POST /api/v1/stream/tickets"
        )
    text = visit.one("ticket")
    if not text:
        return visit.headers.get("authorization", "")
    authorization = tickets.take(text, now=clock.now())
    if authorization is None:
        raise problems.unauthorized(
            "The ticket is unknown, used or older than 30 s; POST /api/v1/stream/tickets"
        )
    return authorization
