"""Advances tasks beside the scheduler: a thread of the executor with a database connection of its
own, so that a task of a thousand steps keeps no execution waiting.

What it is told is a hint, kept in memory: whatever is lost with it is found by looking.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection
from uuid import UUID

import structlog
from django.db import close_old_connections, connections

from orchestrator import clock, workflows

log = structlog.get_logger(__name__)

ACTOR = "executor"
LOOK_EVERY_SECONDS = 1.0
PAUSE_AFTER_ERROR_SECONDS = 1.0
MOST_REMEMBERED = 100_000
"""Ids beyond are left to the look, which finds them a batch at a time."""


class Advancer(threading.Thread):
    """Takes in what ended and what was requested, and once a second what nobody told of."""

    def __init__(self) -> None:
        super().__init__(name="muster-advancer", daemon=True)
        self.stopping = threading.Event()
        self.news = threading.Condition()
        self.ended: set[UUID] = set()
        self.requested: set[UUID] = set()
        self.look_at = 0.0
        self.has_tasks = True
        """While no task is open, ended executions are not asked whose they are."""

    def tell(self, *, ended: Collection[UUID] = (), requested: Collection[UUID] = ()) -> None:
        """Executions that ended, tasks that were requested. Returns at once."""
        self.has_tasks |= bool(requested)
        if not self.has_tasks or len(self.ended) + len(self.requested) > MOST_REMEMBERED:
            return
        with self.news:
            self.ended.update(ended)
            self.requested.update(requested)
            self.news.notify()

    def run(self) -> None:
        while not self.stopping.is_set():
            try:
                self._work(*self._wait())
            except Exception:
                # whatever the database does: the thread must outlive it, and looks again
                log.exception("tasks not advanced, looking again later")
                self.stopping.wait(PAUSE_AFTER_ERROR_SECONDS)
                close_old_connections()
        connections.close_all()

    def stop(self) -> None:
        self.stopping.set()
        with self.news:
            self.news.notify()
        self.join(timeout=10)

    def _wait(self) -> tuple[set[UUID], set[UUID]]:
        """What was told meanwhile; nothing when it is time to look."""
        with self.news:
            if not (self.ended or self.requested):
                self.news.wait(timeout=max(0.0, self.look_at - time.monotonic()))
            told = self.ended, self.requested
            self.ended, self.requested = set(), set()
        return told

    def _work(self, ended: set[UUID], requested: set[UUID]) -> None:
        now = clock.now()
        if requested:
            workflows.advance_all(requested, now=now, actor=ACTOR)
        if ended:
            workflows.note_ended(ended, now=now, actor=ACTOR)
        if time.monotonic() >= self.look_at:
            close_old_connections()
            self.look_at = time.monotonic() + LOOK_EVERY_SECONDS
            workflows.look(now=now, actor=ACTOR)
            self.has_tasks = workflows.any_open()
