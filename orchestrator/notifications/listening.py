"""Listening to PostgreSQL: which rare rows changed, also while the broker is away."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import structlog
from django.db import connection, connections

from orchestrator.notifications.journal import CHANNEL

log = structlog.get_logger(__name__)

LONGEST_PAUSE_SECONDS = 2.0
POLL_SECONDS = 1.0


class Listening(threading.Thread):
    """Calls `wake` when the journal has news, until `stopping`. Its connection is its own: one that
    did other work would hear late, and a listener in a transaction fills the server's queue."""

    def __init__(self, *, wake: Callable[[], None], stopping: threading.Event) -> None:
        super().__init__(name="muster-listening", daemon=True)
        self.wake, self.stopping = wake, stopping

    def run(self) -> None:
        pause_seconds = 0.1
        while not self.stopping.is_set():
            try:
                self._listen()
                pause_seconds = 0.1
            except Exception as error:  # noqa: BLE001 - whatever it is, it listens again
                log.warning("not listening, trying again", error=repr(error))
                connections.close_all()
                self.stopping.wait(pause_seconds)
                pause_seconds = min(2 * pause_seconds, LONGEST_PAUSE_SECONDS)
        connections.close_all()

    def _listen(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"LISTEN {CHANNEL}")
        # what came before is in the journal
        self.wake()
        session: Any = connection.connection
        with connection.wrap_database_errors:
            while not self.stopping.is_set():
                for _ in session.notifies(timeout=POLL_SECONDS, stop_after=1):
                    self.wake()
