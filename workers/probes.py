"""Probes that a worker makes of itself, to find out if it is fit for work.

Every `health_check_interval_seconds` it checks that its loop turns, its pool answers, and each
configured check passes; its connection to the broker is watched all the time (`broker_watch`).
While one fails it is inactive, what it has not started goes elsewhere, and it checks more often.
Running actions and the heartbeat go on: an unfit worker is not lost.

The worker checks itself, instead of an executor checking all workers: only the worker sees its loop
and its pool, and only it can stop consuming.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.db import close_old_connections, connections

from orchestrator.core import health_checks, outages
from workers import child
from workers.broker_watch import BrokerWatch
from workers.fitness import Fitness
from workers.questions import ANSWER_SECONDS, Question

if TYPE_CHECKING:
    from workers.host import Host

log = outages.get_logger(__name__)

UNFIT_INTERVAL_SECONDS = 5.0


class Prober(threading.Thread):
    """Probes until the worker stops."""

    def __init__(self, agent: Host) -> None:
        super().__init__(name="muster-probes", daemon=True)
        self.agent = agent
        self.fitness = Fitness(agent)
        self.broker_watch = BrokerWatch(agent, self.fitness)
        self.pool = PoolProbe(agent)
        self.questions = {
            name: Question(check) for name, check in health_checks.configured().items()
        }

    def start(self) -> None:
        self.broker_watch.start()
        super().start()

    def run(self) -> None:
        while not self.agent.is_stopping:
            self._pause(is_fit=self._probe())
        connections.close_all()

    def _probe(self) -> bool:
        """Make all checks, tell what they found, and look for the code that the worker lacks;
        returns False if a check fails, or any of this does."""
        try:
            answers = self.look()
            failures = {name: why for name, why in answers.items() if why is not None}
            self.fitness.tell(answers.keys(), failures)
            if not self.agent.is_stopping:
                self.agent.code.look()
            close_old_connections()
        except Exception:  # of any kind: without this thread an unfit worker would stay so
            log.exception("could not probe this worker; the next probe will")
            connections.close_all()
            return False
        return not failures

    def _pause(self, *, is_fit: bool) -> None:
        """Wait for the next probe: shorter if a check fails, or as soon as the worker lacks
        code."""
        until = time.monotonic() + settings.MUSTER.health_check_interval_seconds
        while (left_seconds := until - time.monotonic()) > 0:
            self.agent.stops.wait(min(left_seconds, UNFIT_INTERVAL_SECONDS))
            if not is_fit or self.agent.code.is_lacking or self.agent.is_stopping:
                return

    def look(self) -> dict[str, str | None]:
        """Make all checks; returns the reason for a failure, or None, by the names of the
        checks."""
        return {
            "loop": self._loop_turns(),
            "pool": self.pool.ask(),
            **{name: question.ask() for name, question in self.questions.items()},
        }

    def _loop_turns(self) -> str | None:
        if self.agent.loop.turns(within_seconds=ANSWER_SECONDS):
            return None
        return f"the consumer's loop did not turn for {ANSWER_SECONDS:g} s"


class PoolProbe:
    """Gives each idle pool process, or thread, an empty errand, and waits for its return.

    A busy one is not probed: it shows that it works. The errand takes a slot for a millisecond, and
    what is claimed meanwhile waits no longer than that.
    """

    def __init__(self, agent: Host) -> None:
        self.agent = agent
        self.asked: set[Errand] = set()

    def ask(self) -> str | None:
        """Probe the pool and wait for the answers; returns None, or what is wrong."""
        if not self.agent.loop.is_connected:
            if not self._unanswered():
                self.agent.desk.end_probe()
            return None
        if not self.asked:
            submitted = threading.Event()
            self.agent.loop.call_soon(lambda: self._submit(submitted))
            if not submitted.wait(ANSWER_SECONDS):
                return None  # the loop is stuck, which another check reports
        until = time.monotonic() + ANSWER_SECONDS
        while self._unanswered() and time.monotonic() < until:
            time.sleep(0.02)
        silent = self._unanswered()
        if not silent:
            self.agent.desk.end_probe()
            return None
        for errand in silent:
            errand.kill()
        what = "processes" if self.agent.pool_kind == "prefork" else "threads"
        return f"{len(silent)} idle pool {what} did not answer within {ANSWER_SECONDS:g} s"

    def _submit(self, submitted: threading.Event) -> None:
        for _ in range(self.agent.desk.begin_probe()):
            errand = Errand()
            errand.result = self.agent.desk.pool.apply_async(
                child.nothing, args=(), callback=errand.answer, error_callback=errand.answer
            )
            self.asked.add(errand)
        submitted.set()

    def _unanswered(self) -> set[Errand]:
        self.asked = {errand for errand in self.asked if not errand.is_answered}
        return self.asked


class Errand:
    """One no-op on its way through the pool."""

    def __init__(self) -> None:
        self.is_answered = False
        self.result: Any = None

    def answer(self, *_: Any, **__: Any) -> None:
        self.is_answered = True

    def kill(self) -> None:
        """Kill a pool child that does not even return an empty errand; it runs nothing else."""
        process = getattr(self.result, "_write_to", None)
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
