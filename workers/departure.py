"""The end of a worker: its drain, what it kills when its time is up, and its sign-off."""

from __future__ import annotations

import math
import os
import threading
import time
from typing import Any

from celery.worker import state
from django.conf import settings
from django.db import Error as DatabaseError
from django.db import transaction

from orchestrator.core import clock, executions, fleet, outages, relay
from orchestrator.core.states import AttemptKey
from workers import liveness, processes
from workers.host import Host
from workers.returns import NOT_GIVEN_BACK, attempted
from workers.runtimes import warm_process

log = outages.get_logger(__name__)

EXIT_LOST = 70
"""Exit status (EX_SOFTWARE) of a worker that was declared lost: its supervisor starts it again."""

LOOK_SECONDS = 0.1
LOST_SECONDS = 2.0 * processes.KILL_ROUNDS
"""The longest wait for the end of what killed pool children left behind, their actions' processes
and their own."""
LAST_LINES_SECONDS = 1.0
"""The time of one thread that gives up to log what is lost, before another one ends the process."""
MOST_LOST = 100
"""Lines of what is lost with a worker that gives up; the rest are counted in one more line."""
END_LOST = "an end could not be stored and is lost"
RUN_LOST = "an execution is killed: its worker gives up"
ANNOUNCE_SECONDS = 1.0
"""Between two attempts to announce a drain."""
UNSTOPPABLE_SECONDS = 5.0
"""The longest wait for a thread that cannot be stopped, after its time is up."""


class Departure(threading.Thread):
    """Lets a worker go. Its thread waits for the request: by then there may be no room for one."""

    def __init__(self, agent: Host) -> None:
        super().__init__(name="muster-drain", daemon=True)
        self.agent = agent
        self._reason = ""
        self._kill_at = float("inf")
        """The time at which a stopping worker kills what still runs; by `time.monotonic`."""
        self._pool_is_down = threading.Event()
        self._goes_with_threads = False
        self._dies = threading.Lock()
        self._has_killed = threading.Event()

    def drain(self, reason: str, *, within_seconds: float) -> None:
        """Take no more work, announce it at once, and end what still runs after this many seconds.

        Called from signal handlers, so a thread does the writing, see `run`. Another call can
        only shorten the time.
        """
        self._kill_at = min(self._kill_at, time.monotonic() + within_seconds)
        if self.agent.is_stopping:
            return
        self._reason = reason
        self.agent.is_stopping = True
        self.agent.stops.set()
        liveness.notify("STOPPING=1")

    def finish_and_go(self) -> None:
        """Drain for an operator: running actions get unlimited time."""
        self.drain("drained", within_seconds=float("inf"))
        state.should_stop = os.EX_OK  # type: ignore[assignment]
        self.agent.loop.wake()

    def die(self, why: str) -> None:
        """Kill all actions and exit at once: others already treat this worker as gone.

        What is lost by that is logged so that an operator can clean up, and after the kill: nobody
        may read it, and then a line waits for ever. Two threads may give up at once: the second one
        lets the first one finish.
        """
        if not self._dies.acquire(blocking=False):
            self._has_killed.wait(LOST_SECONDS)
            time.sleep(LAST_LINES_SECONDS)
            os._exit(EXIT_LOST)
        self.agent.is_stopping = True
        lost = self._lost()  # first: what is killed is not here any more
        try:
            self._kill_all()
        except Exception:
            log.exception("could not kill all that runs; the sentinel will")
        self._has_killed.set()
        log.critical("worker gives up", worker=self.agent.name, why=why)
        _log_lost(lost)
        os._exit(EXIT_LOST)

    def _lost(self) -> list[dict[str, Any]]:
        """The facts that this worker knows and the database does not: ends, and what runs. Takes no
        lock, as a thread that is stuck may hold it."""
        ends = list(self.agent.finisher.unrecorded.items())
        running = list(self.agent.desk.claimed.items())
        lines = [_line(END_LOST, key, reason=str(reason)) for key, reason in ends]
        # what has no slot is claimed only
        lines += [_line(RUN_LOST, key, begun=each.job is not None) for key, each in running]
        return lines

    def run(self) -> None:
        """Wait for a request to stop; then announce it and give back what has not begun, until that
        succeeds, and kill what still runs when the time is up. Ends when the pool is down."""
        self.agent.stops.wait()
        within_seconds = max(0.0, self._kill_at - time.monotonic())
        log.info(
            "Worker shutting down gracefully",
            worker=self.agent.name,
            reason=self._reason,
            running=len(self.agent.desk.claimed),
            within_seconds=round(within_seconds) if math.isfinite(within_seconds) else None,
        )
        is_announced, announce_at = False, 0.0
        while True:
            if not is_announced and time.monotonic() >= announce_at:
                is_announced = attempted(self._announce, "could not announce the drain")
                announce_at = time.monotonic() + ANNOUNCE_SECONDS
            elif self.agent.returns.are_waiting():  # claims that were granted since
                attempted(self._give_back, NOT_GIVEN_BACK)
            if self._pool_is_down.wait(LOOK_SECONDS):
                return
            attempted(self._kill_when_due, "could not kill what runs")

    def _announce(self) -> None:
        """Say that this worker stops, and give back what has not begun."""
        fleet.drain(
            worker_id=self.agent.worker_id,
            incarnation=self.agent.incarnation,
            reason=self._reason,
            now=clock.now(),
        )
        self._give_back()

    def _give_back(self) -> None:
        self.agent.returns.give_back_all(pool_is_down=self._pool_is_down.is_set())

    def _kill_when_due(self) -> None:
        """Kill what runs, if the time to stop is up."""
        late_seconds = time.monotonic() - self._kill_at
        if late_seconds >= 0 and (running := list(self.agent.desk.claimed.values())):
            if not all(attempt.is_stopped for attempt in running):
                log.warning("time to stop is up: killing what runs", n=len(running))
            for attempt in running:
                attempt.is_stopped = True
            # again: an action that just got its slot may have its process only now
            self._kill_all()
        if late_seconds > UNSTOPPABLE_SECONDS and self.agent.pool_kind != "prefork":
            self._go_with_stuck_threads()

    def _go_with_stuck_threads(self) -> None:
        """Leave, and end this process with the threads that cannot be ended otherwise."""
        self._goes_with_threads = True
        stuck = list(self.agent.desk.claimed.values())
        log.error("a thread that cannot be stopped ends with its process", n=len(stuck))
        try:
            self._settle()
            relay.flush()
            self._put_away()
            # last, as they may start elsewhere from then on; and together with the sign-off, as
            # whatever a worker holds that has left counts as lost
            with transaction.atomic():
                ends = [attempt.stopped() for attempt in stuck]
                executions.finish(ends, now=clock.now(), actor=self.agent.name)
                self._sign_off()
        except Exception:
            log.exception(
                "could not record stopped attempts; the heartbeat check will end them",
                is_final=True,
            )
        os._exit(os.EX_OK)

    def _kill_all(self) -> None:
        for attempt in list(self.agent.desk.claimed.values()):
            self.agent.canceller.kill(attempt)
        processes.kill_all(os.environ[processes.WORKER_TOKEN])

    def leave(self) -> None:
        """Record the last ends after the pool is down, then sign off. Heartbeats go on until
        then."""
        if self._goes_with_threads:
            threading.Event().wait()  # the last of them may end now: the process ends all the same
        if not self.agent.incarnation or self._pool_is_down.is_set():
            return
        try:
            self._wait_for_lost()
            self._settle()
            self._sign_off()
            # an executor may have chosen this worker just before it learned of the drain
            self._give_back()
            relay.flush()
        except DatabaseError:
            log.exception("could not sign off; the staleness check will notice", is_final=True)
        self._put_away()
        log.info("Worker shutdown complete", worker=self.agent.name)

    def _wait_for_lost(self) -> None:
        """Wait until what killed pool children left behind is ended: see `Attempt.on_lost`."""
        until = time.monotonic() + LOST_SECONDS
        while any(attempt.is_lost for attempt in list(self.agent.desk.claimed.values())):
            if time.monotonic() > until:
                log.error("what lost actions left behind has not ended")
                break
            time.sleep(LOOK_SECONDS)

    def _settle(self) -> None:
        """Record the last ends, give back the rest, and stop the heartbeat."""
        self._pool_is_down.set()
        self.agent.finisher.flush(settings.MUSTER.shutdown_timeout_seconds)
        self.agent.claimer.flush(settings.MUSTER.publish_timeout_seconds)
        # a claim may have been granted after the end of the loop that would have started it; it
        # goes back first: on a worker that is gone, it would count as lost
        self._give_back()
        self.agent.heartbeat.stop()
        self.agent.heartbeat.audit.settle(now=clock.now())

    def _sign_off(self) -> None:
        fleet.leave(
            worker_id=self.agent.worker_id,
            incarnation=self.agent.incarnation,
            reason="stopped",
            now=clock.now(),
        )

    def _put_away(self) -> None:
        """Remove what watches this process from outside, and what waits for its work."""
        warm_process.end_all()
        self.agent.heartbeat.sentinel.dismiss()
        if self.agent.heartbeat.sign is not None:
            self.agent.heartbeat.sign.remove()


def _line(event: str, key: AttemptKey, **facts: Any) -> dict[str, Any]:
    execution_id, attempt = key
    return {"event": event, "execution_id": str(execution_id), "attempt": attempt, **facts}


def _log_lost(lost: list[dict[str, Any]]) -> None:
    for line in lost[:MOST_LOST]:
        log.error(**line)
    if len(lost) > MOST_LOST:
        log.error("more is lost than is listed", n=len(lost) - MOST_LOST)
