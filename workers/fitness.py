"""Fitness of a worker for work, as its probes find it and the database records it."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from django.db import Error as DatabaseError
from django.db import close_old_connections, connections

from orchestrator.core import clock, executions, fleet, outages

if TYPE_CHECKING:
    from workers.host import Host

log = outages.get_logger(__name__)

QUEUE_CHECK = "queue"

GOES_ON_CONSUMING = frozenset({QUEUE_CHECK, fleet.BROKER_CHECK})
"""Checks that fail because this worker does not consume: to stop consuming would not help."""


class Fitness:
    """The failing checks of this worker: while one fails, it gets no work, and what it has not
    started goes elsewhere. May be used from any thread."""

    def __init__(self, agent: Host) -> None:
        self.agent = agent
        self.failing: dict[str, str] = {}
        """The reason for each failing check, as recorded in the database; empty while it is not
        known whether it is."""
        self._lock = threading.Lock()

    def tell(self, asked: Collection[str], failures: Mapping[str, str]) -> None:
        """Record that of the checks made these fail, each for a reason, and the others pass."""
        if self.agent.is_stopping:
            return
        try:
            with self._lock:
                self._tell(asked, failures)
                if self.failing:
                    # every time: an executor may have chosen this worker a moment before
                    executions.release_from(
                        worker_id=self.agent.worker_id, now=clock.now(), actor=self.agent.name
                    )
            close_old_connections()
        except DatabaseError:
            log.exception("could not record the checks of this worker; the next probe will")
            connections.close_all()

    def _tell(self, asked: Collection[str], failures: Mapping[str, str]) -> None:
        if failures.keys() - GOES_ON_CONSUMING:
            self.agent.loop.pause()
        life = {"worker_id": self.agent.worker_id, "incarnation": self.agent.incarnation}
        for name, reason in failures.items():
            if not self.failing.get(name):
                self.failing[name] = ""  # first: an answer that is lost may be of a commit
                fleet.mark_unhealthy(**life, check=name, reason=reason, now=clock.now())
                self.failing[name] = reason
        for name in (self.failing.keys() & set(asked)) - failures.keys():
            fleet.mark_healthy(**life, check=name, now=clock.now())
            del self.failing[name]
        if not self.failing.keys() - GOES_ON_CONSUMING:
            self.agent.loop.resume()
