"""How the API knows who calls: by a bearer token."""

from __future__ import annotations

from django.http import HttpRequest
from ninja.security import HttpBearer

from orchestrator.access import tokens
from orchestrator.core import clock
from orchestrator.core.api import problems
from orchestrator.core.api.access import Caller


class BearerToken(HttpBearer):
    """`Authorization: Bearer mst_...`; no session opens this door, so no form can be forged."""

    def __call__(self, request: HttpRequest) -> Caller:
        scheme, _, text = request.META.get("HTTP_AUTHORIZATION", "").partition(" ")
        if scheme.lower() != "bearer":
            raise problems.unauthorized(
                "Send Authorization: Bearer mst_...; `manage.py token create NAME` makes a token"
            )
        return self.authenticate(request, text.strip())

    def authenticate(self, request: HttpRequest, token: str) -> Caller:
        now = clock.now()
        found = tokens.authenticate(token, now=now)
        if found is None:
            # one answer for all of them: which it is, is for the owner of the token to see
            raise problems.unauthorized(
                "The token is unknown, revoked or expired", challenge=', error="invalid_token"'
            )
        return Caller(name=found.name, now=now)
