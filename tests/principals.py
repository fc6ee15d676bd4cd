"""Who asks in tests: identities with grants, and their tokens."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User
from django.test import Client

from orchestrator.access import grants, identities, tokens
from orchestrator.access.authorizer import AtTerminal, Identified
from orchestrator.access.grants import Given
from orchestrator.access.models import Identity
from orchestrator.core import clock
from tests.core.api.client import Caller

ROOT = AtTerminal("cli:tests")
"""May do everything."""


def given(gives: str, **scope: Any) -> Given:
    """A role or a permission: `given("operator", packs=["shop"])`."""
    return grants.check(gives, **scope)


def principal(*given_to_it: Given, actor: str = "somebody") -> Identified:
    """Somebody with these grants, who is in no database."""
    return Identified(actor=actor, key_owner=99, layers=(given_to_it,))


def service(name: str, *given_to_it: Given) -> Identity:
    """The service account of this name, with these grants if it has to be made."""
    known = Identity.objects.filter(service_name=name).first()
    if known is not None:
        return known
    made = identities.create_service(name, now=clock.now())
    for each in given_to_it:
        identities.grant(made, each, by=ROOT, now=clock.now())
    return made


def token(name: str, *given_to_it: Given, **values: Any) -> str:
    """The text of a token of a service account of its own, which has these grants."""
    owner = service(name, *given_to_it)
    return tokens.create(name=name, owner=owner, by=ROOT, now=clock.now(), **values)[1]


def caller(name: str, *given_to_it: Given) -> Caller:
    """A client of the API with such a token."""
    return Caller(token(name, *given_to_it))


def staff(name: str, *given_to_it: Given) -> Client:
    """A browser of a person who may log in to the admin, with these grants."""
    user = User.objects.create_user(name, is_staff=True)
    identity = identities.of_user(name, now=clock.now())
    for each in given_to_it:
        identities.grant(identity, each, by=ROOT, now=clock.now())
    client = Client()
    client.force_login(user)
    return client
