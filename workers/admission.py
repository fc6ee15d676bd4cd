"""Admission of a worker: it gets work as soon as its consumer consumes, and not before."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from django.db import Error as DatabaseError
from django.db import connections

from orchestrator.core import fleet, outages

if TYPE_CHECKING:
    from workers.host import Host

log = outages.get_logger(__name__)

WAIT_SECONDS = 1.0
"""The longest time that the consumer's loop waits for the update of the worker's row."""


class Admission:
    """The step from a worker's registration to its readiness. May be called from any thread."""

    def __init__(self, agent: Host) -> None:
        self.agent = agent
        self.has_consumed = self._is_admitted = False

    def consumes(self) -> None:
        """Note that the consumer consumes for the first time: this worker can work, and can
        stop."""
        self.has_consumed = True
        # not on this thread, which is the consumer's loop: the database may block it
        begin = threading.Thread(target=self._try_to_begin, daemon=True)
        begin.start()
        begin.join(WAIT_SECONDS)

    def _try_to_begin(self) -> None:
        try:
            self.begin()
        except DatabaseError:
            log.exception("could not admit this worker; its next heartbeat will")
        finally:
            connections.close_all()

    def begin(self) -> None:
        """Have this worker get work from now on, once it consumes. Raises database errors. Called
        again at each heartbeat, which is harmless."""
        if self.has_consumed and not self._is_admitted:
            fleet.admit(worker_id=self.agent.worker_id, incarnation=self.agent.incarnation)
            self._is_admitted = True
