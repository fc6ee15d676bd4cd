"""The identity of a client, and what it may see: asked again every few seconds, as long as it
listens.

Clients with the same credential share one entry, so that a token costs one lookup, whoever uses it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import structlog
from django.db import DatabaseError, InterfaceError, close_old_connections

from orchestrator.core import authority
from orchestrator.core.authority import Principal, Reach
from orchestrator.core.errors import MusterError
from orchestrator.notifications.notification import Notification

log = structlog.get_logger(__name__)

ASKED_EVERY_SECONDS = 2.0
GOOD_FOR_SECONDS = 5.0
PERMISSION = "stream.read"

Identify = Callable[[], Principal]
"""Asks who it is, with the grants of now. Raises MusterError if the credential is not good."""


class Credential:
    """The common part of several clients: a token, from one address, or a session."""

    def __init__(self, key: Any, identify: Identify) -> None:
        self.key, self._identify = key, identify
        self.users = 0
        self.is_refused = False
        self.principal: Principal
        self.asked_at = float("-inf")
        self._reaches: dict[str, Reach] = {}

    @property
    def identity(self) -> str:
        """The identity whose connections are counted together."""
        return getattr(self.principal, "identity", "") or self.principal.actor

    @property
    def is_stale(self) -> bool:
        """True if its grants are older than anybody may rely on: the database did not answer."""
        return time.monotonic() - self.asked_at > GOOD_FOR_SECONDS

    def ask(self) -> None:
        """Ask who it is now. Runs in a thread. Raises MusterError, and the database's errors."""
        close_old_connections()
        began = time.monotonic()
        principal = self._identify()
        authority.require(principal, PERMISSION)
        self.principal, self._reaches, self.asked_at = principal, {}, began

    def ask_again(self) -> None:
        """Do as `ask`; note if it is refused."""
        try:
            self.ask()
        except MusterError as refused:
            log.info("a client's credential is no longer good", why=str(refused))
            self.is_refused = True
        except (DatabaseError, InterfaceError) as error:
            log.warning("a client's grants are not known", error=repr(error))

    def may_see(self, one: Notification) -> bool:
        reaches = self._reaches
        reach = reaches.get(one.permission)
        if reach is None:
            reach = reaches[one.permission] = authority.reach(self.principal, one.permission)
        return reach.covers(one.place)


class Credentials:
    """The credentials of all clients, by what distinguishes them."""

    def __init__(self) -> None:
        self._known: dict[Any, Credential] = {}

    def take(self, credential: Credential) -> Credential:
        """The entry for this credential, which is known to be good."""
        entry = self._known.setdefault(credential.key, credential)
        entry.users += 1
        return entry

    def drop(self, credential: Credential) -> None:
        credential.users -= 1
        if not credential.users:
            self._known.pop(credential.key, None)

    def all(self) -> list[Credential]:
        return list(self._known.values())
