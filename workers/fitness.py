"""Whether a worker is fit for work, as its probes find it and the database is told."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

import structlog
from django.db import Error as DatabaseError
from django.db import close_old_connections, connections

from orchestrator.core import clock, executions, fleet

if TYPE_CHECKING:
    from workers.host import Host

log = structlog.get_logger(__name__)

QUEUE_CHECK = "queue"

GOES_ON_CONSUMING = frozenset({QUEUE_CHECK, fleet.BROKER_CHECK})
"""What fails because this worker does not consume is not mended by consuming less."""


class Fitness:
    """What fails on this worker, and what follows: while anything does, it is given no work, and
    what it was given and has not begun goes elsewhere. From any thread."""

    def __init__(self, agent: Host) -> None:
        self.agent = agent
        self.failing: dict[str, str] = {}
        """Why each check that fails does, as the database knows it."""
        self._lock = threading.Lock()

    def tell(self, asked: Collection[str], failures: Mapping[str, str]) -> None:
        """Of the checks that were asked, these fail, each with why, and the others pass."""
        if self.agent.is_stopping:
            return
        try:
            with self._lock:
                self._tell(asked, failures)
                if self.failing:
                    # again and again: an executor may have chosen this worker a moment before
                    executions.release_from(
                        worker_id=self.agent.worker_id, now=clock.now(), actor=self.agent.name
                    )
            close_old_connections()
        except DatabaseError:
            log.exception("could not tell how this worker is; the next probe will")
            connections.close_all()

    def consume_again(self) -> None:
        """Begin to consume once more, if nothing speaks against it."""
        with self._lock:
            if not self.agent.is_paused:
                self.agent.pause()
                self.agent.resume()

    def _tell(self, asked: Collection[str], failures: Mapping[str, str]) -> None:
        if failures.keys() - GOES_ON_CONSUMING:
            self.agent.pause()
        life = {"worker_id": self.agent.worker_id, "incarnation": self.agent.incarnation}
        for name in failures.keys() - self.failing.keys():
            fleet.mark_unhealthy(**life, check=name, reason=failures[name], now=clock.now())
            self.failing[name] = failures[name]
        for name in (self.failing.keys() & set(asked)) - failures.keys():
            fleet.mark_healthy(**life, check=name, now=clock.now())
            del self.failing[name]
        if not self.failing.keys() - GOES_ON_CONSUMING:
            self.agent.resume()
