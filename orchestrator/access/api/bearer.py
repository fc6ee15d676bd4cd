"""Authentication of the API's callers by a bearer token."""

from __future__ import annotations

from datetime import datetime

from django.http import HttpRequest
from ninja.security import HttpBearer

from orchestrator.access import execution_tokens, tokens
from orchestrator.core import clock
from orchestrator.core.api import problems
from orchestrator.core.api.access import Caller, address_of
from orchestrator.core.api.limits import refused_tokens
from orchestrator.core.authority import Principal


class BearerToken(HttpBearer):
    """`Authorization: Bearer mst_...`; sessions are not accepted, so no form can be forged."""

    def __call__(self, request: HttpRequest) -> Caller:
        scheme, _, text = request.META.get("HTTP_AUTHORIZATION", "").partition(" ")
        if scheme.lower() != "bearer":
            raise problems.unauthorized(
                "Send Authorization: Bearer mst_...; `manage.py token create NAME` creates a token"
            )
        return self.authenticate(request, text.strip())

    def authenticate(self, request: HttpRequest, token: str) -> Caller:
        now = clock.now()
        address = address_of(request)
        refused_tokens.require_room(address, token)
        known = _principal(token, now, address)
        if known is None:
            refused_tokens.note_refused(address)
            # one answer for all cases: only operators may see which one it is
            raise problems.unauthorized(
                "The token is unknown, revoked or expired, or not accepted from here",
                challenge=', error="invalid_token"',
            )
        refused_tokens.note_accepted(token)
        return Caller(principal=known, now=now)


def _principal(token: str, now: datetime, address: str) -> Principal | None:
    if token.startswith(execution_tokens.PREFIX):
        return execution_tokens.authenticate(token)
    return tokens.authenticate(token, now=now, address=address)
