"""Parts of apps in each executor: a thread for each, beside the scheduler.

A part has its own database connection, so that a task of a thousand steps delays no execution. Its
input is a hint, kept in memory: what is lost is found by looking.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection
from uuid import UUID

from celery import shared_task
from django.db import close_old_connections, connections

from orchestrator.core import clock, frame, messages, outages
from orchestrator.core.frame import ExecutorPart
from tasks.stalls import Watched

log = outages.get_logger(__name__)

ACTOR = "executor"
LOOK_EVERY_SECONDS = 1.0
PAUSE_AFTER_ERROR_SECONDS = 1.0
MOST_REMEMBERED = 100_000
"""Further ids are left to the look, which finds them a batch at a time."""


class PartThread(Watched):
    """Handles executions that ended, ids from its queue, and once a second what no message
    reported."""

    def __init__(self, part: ExecutorPart) -> None:
        super().__init__(name=f"muster-{part.queue.message}", daemon=True)
        self.part = part
        self.stopping = threading.Event()
        self.news = threading.Condition()
        self.ended: set[UUID] = set()
        self.received: set[UUID] = set()
        self.look_at = 0.0
        self.any_open = part.ended is not None
        """While nothing is open, ended executions are ignored."""

    def give(self, *, ended: Collection[UUID] = (), received: Collection[UUID] = ()) -> None:
        """Take executions that ended, and ids from its queue. Returns at once."""
        with self.news:
            self.any_open |= bool(received) and self.part.ended is not None
            wanted = ended if self.any_open else ()
            if not (wanted or received) or len(self.ended) + len(self.received) > MOST_REMEMBERED:
                return
            self.ended.update(wanted)
            self.received.update(received)
            self.news.notify()

    def run(self) -> None:
        while not self.stopping.is_set():
            try:
                self.busy_since = 0.0
                self._work(*self._wait())
            except Exception as error:
                # the thread must survive every error of the database, and looks again
                self.note_failure(error)
                log.exception("part failed, looking again later", part=self.part.queue.message)
                self.stopping.wait(PAUSE_AFTER_ERROR_SECONDS)
                close_old_connections()
        connections.close_all()

    def stop(self) -> None:
        self.stopping.set()
        with self.news:
            self.news.notify()
        self.join(timeout=10)

    def _wait(self) -> tuple[set[UUID], set[UUID]]:
        """Wait for ids; returns those given meanwhile, or none when it is time to look."""
        with self.news:
            if not (self.ended or self.received):
                self.news.wait(timeout=max(0.0, self.look_at - time.monotonic()))
            given = self.ended, self.received
            self.ended, self.received = set(), set()
        return given

    def _work(self, ended: set[UUID], received: set[UUID]) -> None:
        self.busy_since = time.monotonic()
        now = clock.now()
        if received:
            self.part.take(received, now=now, actor=ACTOR)
        if ended and self.part.ended is not None:
            self.part.ended(ended, now=now, actor=ACTOR)
        if time.monotonic() >= self.look_at:
            close_old_connections()
            self.look_at = time.monotonic() + LOOK_EVERY_SECONDS
            self.part.look(now=now, actor=ACTOR)
            any_open = self.part.any_open is not None and self.part.any_open()
            with self.news:
                # what was received meanwhile was perhaps not there yet when it was asked
                any_open |= bool(self.received) and self.part.ended is not None
                self.any_open = any_open


def parts() -> list[ExecutorPart]:
    """The parts of all installed apps."""
    return frame.collect(lambda app: app.executor_parts)


def lists() -> dict[str, str]:
    """The messages that an executor takes in batches, each with its argument that holds the ids."""
    return {
        messages.SCHEDULE: messages.EXECUTION_IDS,
        messages.COMPLETED: messages.EXECUTION_IDS,
        **{part.queue.message: part.queue.listed for part in parts()},
    }


def load() -> None:
    """Import the functions of all parts, before their threads start."""
    for part in parts():
        for function in (part.take, part.look, part.ended, part.any_open):
            if function is not None:
                function.load()


def _register(part: ExecutorPart) -> None:
    @shared_task(name=part.queue.message)
    def take(**arguments: list[str]) -> None:
        ids = [UUID(id) for id in arguments[part.queue.listed]]
        part.take(ids, now=clock.now(), actor=ACTOR)


for part in parts():
    _register(part)
