"""Limits of requests: of one caller, and of refused tokens from one address.

Each counts in windows of a minute, over all API processes if there is a Redis.
"""

from __future__ import annotations

import math
import time

from django.conf import settings

from orchestrator.core import shared_cache
from orchestrator.core.api import problems
from orchestrator.core.authority import Principal

WINDOW_SECONDS = 60

MOST_REMEMBERED = 10_000


class RefusedTokens:
    """The knowledge of this process about the addresses from which tokens were refused.

    An address over the limit is refused without a look into the database until its window ends.
    Callers whose token this process accepted before pass all the same: a stranger
    behind the same address must not keep them out.
    """

    def __init__(self) -> None:
        self._braked_until: dict[str, float] = {}
        self._accepted: set[int] = set()

    def forget(self) -> None:
        self._braked_until.clear()
        self._accepted.clear()

    def require_room(self, address: str, token: str) -> None:
        """Raise Problem (429) if the address is over the limit and the token is not known."""
        until = self._braked_until.get(address, 0.0)
        if time.time() < until and hash(token) not in self._accepted:
            raise problems.too_many("Too many refused tokens from this address", _left(until))

    def note_accepted(self, token: str) -> None:
        # Python's hash of a text differs in each process, and tells nothing of it
        _remember_few(self._accepted)
        self._accepted.add(hash(token))

    def note_refused(self, address: str) -> None:
        """Count one; the address is empty for a proxy that does not say for whom it asks."""
        limit = settings.MUSTER.refused_tokens_per_minute
        if not address:
            return
        until = _end_of_window()
        key = f"refused tokens of {address} until {until}"
        if shared_cache.count(key, seconds=WINDOW_SECONDS) >= limit:
            _remember_few(self._braked_until)
            self._braked_until[address] = until


refused_tokens = RefusedTokens()


def require_room(principal: Principal) -> None:
    """Count a request of this caller. Raises Problem (429) if it is one too many in its minute."""
    limit = settings.MUSTER.requests_per_minute
    if math.isinf(limit):
        return
    until = _end_of_window()
    key = f"requests of {principal.actor} until {until}"
    if shared_cache.count(key, seconds=WINDOW_SECONDS) > limit:
        raise problems.too_many(
            f"A caller has {limit:g} requests a minute (MUSTER_REQUESTS_PER_MINUTE)", _left(until)
        )


def _end_of_window() -> float:
    return (time.time() // WINDOW_SECONDS + 1) * WINDOW_SECONDS


def _left(until: float) -> int:
    return max(1, math.ceil(until - time.time()))


def _remember_few(known: set[int] | dict[str, float]) -> None:
    """Forget everything rather than grow without end."""
    if len(known) >= MOST_REMEMBERED:
        known.clear()
