"""Pauses of this worker's subscriptions, after actions that said "not now": see `fleet.pauses`.

The report of such an end pauses the subscription in the worker's row (`executions.finish`). This
thread does the rest while a pause lasts: it keeps the row as the worker counts, returns what was
sent ahead, and asks the queue's health check, which may end the pause early. The worker's own count
decides: nothing of a paused queue is started, whatever an executor with an old view of the fleet
still sends. It counts seconds, so that a clock that is set does not prolong a pause.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from django.conf import settings
from django.db import close_old_connections, connections

from orchestrator.core import clock, deferral, executions, fleet, health_checks, outages
from workers.questions import Question

if TYPE_CHECKING:
    from orchestrator.core.models import Execution
    from workers.host import Host

log = outages.get_logger(__name__)

LOOK_SECONDS = 1.0
"""The interval of looks while a pause lasts."""

LONGEST_SECONDS = fleet.LONGEST_PAUSE.total_seconds()

CHECK_SECONDS = 5.0
"""The interval at which a health check is asked, as of those of an unfit worker."""


@dataclass
class Pause:
    """One pause."""

    queue: str | None
    """None for that of an action without a queue."""
    noted_at: float
    """The time at which an action last said "not now", by `time.monotonic`."""
    seconds: float
    asked_at: float
    """The time at which its health check was last asked, or else at which it was noted."""
    question: Question | None = None

    @property
    def left_seconds(self) -> float:
        return self.noted_at + self.seconds - time.monotonic()


class Pauses(threading.Thread):
    """The pauses of this life of the worker."""

    def __init__(self, agent: Host) -> None:
        super().__init__(name="muster-pauses", daemon=True)
        self.agent = agent
        self._pauses: dict[str, Pause] = {}
        """By `Execution.lane_key`."""
        self._lock = threading.Lock()
        self._noted = threading.Event()

    def note(self, execution: Execution) -> None:
        """Pause what this execution belongs to, as its action said "not now"; prolongs a pause that
        lasts. From any thread, and without the database: until the next look the length is the
        usual one."""
        now = time.monotonic()
        with self._lock:
            known = self._pauses.get(execution.lane_key)
            if known is None:
                seconds = settings.MUSTER.defer_pause_seconds
                self._pauses[execution.lane_key] = Pause(execution.queue, now, seconds, now)
            else:
                known.noted_at = known.asked_at = now
        self._noted.set()

    def holds(self, execution: Execution) -> bool:
        """Return True if this execution must not start here now."""
        if not self._pauses:
            return False  # nearly always
        pause = self._pauses.get(execution.lane_key)
        return pause is not None and pause.left_seconds > 0

    def run(self) -> None:
        while not self.agent.is_stopping:
            self._noted.wait(LOOK_SECONDS if self._pauses else None)
            self._noted.clear()
            try:
                self.look(now=clock.now())
                close_old_connections()
            except Exception:  # of any kind: this thread must live
                log.exception("could not record pauses; the next look will")
                connections.close_all()
                time.sleep(LOOK_SECONDS)

    def look(self, *, now: datetime) -> None:
        """Do what is to be done once a second while a pause lasts:

        1. Read how long each queue wants to be paused.
        2. Forget the pauses that are over, and those whose health check passes.
        3. Write to the worker's row what it lacks, as it does after a write that was lost.
        4. Return what was sent ahead of paused queues and not claimed.
        """
        with self._lock:
            pauses = dict(self._pauses)
            noted_at = {name: pause.noted_at for name, pause in pauses.items()}
        terms = deferral.terms({pause.queue for pause in pauses.values()})
        for pause in pauses.values():
            pause.seconds = min(terms[pause.queue].pause_seconds, LONGEST_SECONDS)
        self._forget(
            {
                name: noted_at[name]
                for name, pause in pauses.items()
                if pause.left_seconds <= 0 or _passes(pause, terms[pause.queue].health_check)
            }
        )
        with self._lock:
            left = {name: pause.left_seconds for name, pause in self._pauses.items()}
        life = {"worker_id": self.agent.worker_id, "incarnation": self.agent.incarnation}
        fleet.set_pauses(**life, seconds=left, now=now)
        if left:
            executions.release_paused(
                worker_id=self.agent.worker_id, names=left, now=now, actor=self.agent.name
            )

    def _forget(self, over: Mapping[str, float]) -> None:
        """Forget these pauses, unless they were prolonged meanwhile."""
        with self._lock:
            for name, noted_at in over.items():
                if self._pauses[name].noted_at == noted_at:
                    del self._pauses[name]


def _passes(pause: Pause, check: str) -> bool:
    """Ask the health check of a queue, if it has one and was not asked a moment ago."""
    if not check or time.monotonic() - pause.asked_at < CHECK_SECONDS:
        return False
    pause.asked_at = time.monotonic()
    if pause.question is None:
        pause.question = _question(pause.queue, check)
    return pause.question is not None and pause.question.ask() is None


def _question(queue: str | None, check: str) -> Question | None:
    try:
        allowed = health_checks.of_queue(check)
    except health_checks.WrongHealthCheck as error:
        log.warning("health check of a queue cannot be asked", queue=queue, why=str(error))
        return None
    if allowed is None:
        why = "MUSTER_QUEUE_HEALTH_CHECKS does not name it"
        log.warning("health check of a queue cannot be asked", queue=queue, check=check, why=why)
        return None
    return Question(allowed)
