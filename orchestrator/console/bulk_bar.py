"""The bar of the list of executions from which one orders in bulk: for all that match its search,
or for the rows that are ticked."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import cast
from urllib.parse import urlencode

from django.core.cache import caches
from django.urls import reverse

from orchestrator.bulk import matching
from orchestrator.bulk.matching import EXECUTIONS
from orchestrator.bulk.verbs import ORDER, VERBS, Verb
from orchestrator.console.look import Look
from orchestrator.core.authority import Place
from orchestrator.core.search import NotUnderstood
from orchestrator.core.shared_cache import OF_PROCESS

COUNTED = 1_000
"""More are not counted for a bar, nor what parameters or messages are compared for; the page of the
order counts all."""
SECONDS = 0.3
KEPT_SECONDS = 5


@dataclass(frozen=True)
class Choice:
    """A verb of the bar."""

    verb: Verb
    url: str
    """Of the order for all that match; empty without a search."""


@dataclass(frozen=True)
class Bar:
    """The orders that may be given from a list."""

    choices: list[Choice]
    count: str
    """The number of those that match, in words; empty if that is not known."""
    new: str


def bar(look: Look, query: str) -> Bar | None:
    """The bar for a search; None for who may order nothing."""
    verbs = _allowed(look)
    if not verbs:
        return None
    choices = [Choice(verb, new_url(verb.name, query) if query.strip() else "") for verb in verbs]
    return Bar(choices, _count(look, query) if query.strip() else "", reverse("console:bulk_new"))


def new_url(verb: str, query: str) -> str:
    """The page of an order for all that match, with its dialog."""
    return f"{reverse('console:bulk_new')}?{urlencode({'verb': verb, 'q': query})}#order"


def run_again_url(look: Look, query: str, place: Place) -> str:
    """The page of an order that runs again what a search finds; empty for who may not do so."""
    verb = VERBS["again"]
    allowed = look.may(ORDER, place) and look.may(verb.permission, place)
    return new_url(verb.name, query) if allowed else ""


def _allowed(look: Look) -> list[Verb]:
    if not look.may(ORDER):
        return []
    verbs = [verb for verb in VERBS.values() if verb.noun is EXECUTIONS]
    return [verb for verb in verbs if look.may(verb.permission)]


def _count(look: Look, query: str) -> str:
    """Kept for some seconds: a page that follows what happens asks each second."""
    digest = hashlib.sha256(f"{look.user.key_owner} {look.user.actor} {query}".encode()).hexdigest()
    key = f"console.bulk.{digest}"
    return cast(
        "str", caches[OF_PROCESS].get_or_set(key, lambda: _counted(look, query), KEPT_SECONDS)
    )


def _counted(look: Look, query: str) -> str:
    try:
        wanted = EXECUTIONS.wanted(query, (), principal=look.user, now=look.now)
        if wanted.checks:  # it would read what it compares
            return ""
        number = wanted.number(most=COUNTED, seconds=SECONDS)
    except (matching.LooksTooLong, matching.SearchNeeded, NotUnderstood):
        return ""
    return f"more than {COUNTED:,}" if number is None else f"{number:,}"
