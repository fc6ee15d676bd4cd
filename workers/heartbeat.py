"""The heartbeat of a worker, and its enforcement.

If a heartbeat is not renewed in time, others treat the worker as gone. So a worker that cannot
renew its heartbeat ends one interval before that, with all that it runs: by itself, or, if it
cannot do anything any more, by its sentinel half an interval later.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

from django.conf import settings
from django.db import close_old_connections, connections

from orchestrator.core import clock, executions, fleet, outages
from orchestrator.core.steady_clock import seconds_counted
from workers import liveness, processes
from workers.audit import Audit
from workers.sentinel import AS_JSON, GOODBYE, RENEWED

if TYPE_CHECKING:
    from workers.host import Host

log = outages.get_logger(__name__)

RETRY_SECONDS = 0.5

LOOK_SECONDS = 1.0
"""The interval of looks for cancels while something runs, if no message hints at one."""
LEAST_PAUSE_SECONDS = 0.05
"""Between two looks, however many messages come."""


class Sentinel:
    """The process that watches this one: see `workers.sentinel`."""

    def __init__(self, limit_seconds: float) -> None:
        self.limit_seconds = limit_seconds
        self.process: subprocess.Popen[bytes] | None = None

    def renew(self) -> None:
        """Report a renewed heartbeat to the sentinel; starts one if there is none (any more)."""
        if not self._write(RENEWED):
            self._start()

    def dismiss(self) -> None:
        self._write(GOODBYE)
        if self.process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(1)

    def close_in_child(self) -> None:
        """A pool child must not hold the worker's end of the pipe."""
        if self.process is not None and self.process.stdin is not None:
            os.close(self.process.stdin.fileno())

    def _write(self, message: bytes) -> bool:
        if self.process is None or self.process.poll() is not None:
            return False
        assert self.process.stdin is not None
        try:
            os.write(self.process.stdin.fileno(), message)
        except OSError:
            return False
        return True

    def _start(self) -> None:
        if self.process is not None and self.process.stdin is not None:
            with contextlib.suppress(OSError):
                self.process.stdin.close()
        token = os.environ[processes.WORKER_TOKEN]
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "workers.sentinel"),
                *(str(os.getpid()), str(self.limit_seconds), token),
                *([AS_JSON] if settings.LOG_AS_JSON else []),
            ],
            cwd=settings.BASE_DIR,
            stdin=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )


class Heartbeat(threading.Thread):
    """Sends heartbeats until the worker has left. A thread, because a warm shutdown stops the
    loop's timers. It sends them only while the loop turns: a worker whose loop is stuck cannot
    work."""

    def __init__(self, agent: Host) -> None:
        super().__init__(name="muster-heartbeat", daemon=True)
        self.agent = agent
        self.interval_seconds = settings.MUSTER.heartbeat_interval_seconds
        self.limit_seconds = settings.MUSTER.staleness_seconds - self.interval_seconds
        self.sentinel = Sentinel(self.limit_seconds + self.interval_seconds / 2)
        self.renewed_at = seconds_counted()
        self.audit = Audit(agent)
        self.sign: liveness.Sign | None = None
        self._left = threading.Event()
        self._hinted = threading.Event()

    @property
    def is_overdue(self) -> bool:
        """True if it was not renewed for so long that nothing may run here any more."""
        return seconds_counted() - self.renewed_at > self.limit_seconds

    def run(self) -> None:
        self._settle_earlier_lives()
        while not self._left.is_set():
            renewed = self._beat()
            if self.is_overdue:
                self.agent.departure.die("its heartbeat could not be renewed")
            self._pause(self._pause_seconds(renewed=renewed))
        connections.close_all()

    def begin(self, asked_at: float) -> None:
        """Count from the registration, which is the first heartbeat; `asked_at`: when it was asked
        for. Before it, the worker may have waited for broker and database for any time."""
        self.renewed_at = asked_at
        self.sentinel.renew()

    def _pause_seconds(self, *, renewed: bool) -> float:
        """The time until the next heartbeat, counted from when the last one was asked for: that of
        a database which stood still was old when it was renewed, and little of its time is left."""
        since = seconds_counted() - self.renewed_at
        retry_seconds = min(RETRY_SECONDS, self.interval_seconds)
        due_seconds = self.interval_seconds - since if renewed else 0.0
        return max(0.0, min(max(retry_seconds, due_seconds), self.limit_seconds - since))

    def _pause(self, seconds: float) -> None:
        """Wait for the next heartbeat, and meanwhile look for cancels: as soon as a message hints
        at one, and often enough not to need the message."""
        until = time.monotonic() + seconds
        while not self._left.is_set() and (left_seconds := until - time.monotonic()) > 0:
            hinted = self._hinted.wait(min(left_seconds, LOOK_SECONDS))
            if not self._left.is_set() and (hinted or self.agent.desk.claimed):
                self._hinted.clear()
                self._look_for_cancels()
                self._left.wait(LEAST_PAUSE_SECONDS)

    def look_for_cancels_soon(self) -> None:
        """Look for cancels at once. May be called from any thread, and by anybody who can send a
        message: any number of calls costs a few queries a second."""
        self._hinted.set()

    def _look_for_cancels(self) -> None:
        try:
            self.audit.look_for_cancels()
        except Exception:  # of any kind: without this thread the worker would end
            log.exception("could not look for cancels; the next look will")
            connections.close_all()

    def beat_while_forking(self) -> None:
        """Renew before the thread is started, if it is time to: forking a large pool takes a while.
        Leaves no connection open that a child could inherit."""
        if seconds_counted() - self.renewed_at > self.interval_seconds:
            self._beat()
            connections.close_all()

    def stop(self) -> None:
        self._left.set()
        self._hinted.set()

    def _beat(self) -> bool:
        """Renew the heartbeat, and do what comes with it; returns False if that was not
        possible."""
        if not self.agent.loop.turns(within_seconds=self.limit_seconds):
            log.error("the consumer's loop is stuck, no heartbeat")
            return False
        asked_at = seconds_counted()
        try:
            now = clock.now()
            answer = fleet.beat(
                worker_id=self.agent.worker_id, incarnation=self.agent.incarnation, now=now
            )
            if self._left.is_set():
                return True  # it has signed off meanwhile, so it is no longer known
            if answer is fleet.HeartbeatAnswer.LOST:
                self.agent.departure.die("it was declared lost or replaced")
            self.renewed_at = asked_at
            if answer is fleet.HeartbeatAnswer.DRAIN and not self.agent.is_stopping:
                self.agent.departure.finish_and_go()
            self.sentinel.renew()
            self._show()
            self.agent.admission.begin()
            self.audit.compare(now=clock.now())
            close_old_connections()
        except Exception:  # of any kind: it may be renewed, and what comes with it is tried again
            log.exception("heartbeat not complete, trying again")
            connections.close_all()
            return False
        return True

    def _settle_earlier_lives(self) -> None:
        """Settle at once what earlier lives left, without waiting for the heartbeat check."""
        try:
            executions.settle_replaced(worker_id=self.agent.worker_id, now=clock.now())
        except Exception:
            log.exception(
                "could not settle what an earlier life left; the heartbeat check will",
                is_final=True,
            )
            connections.close_all()

    def _show(self) -> None:
        if self.sign is None:
            self.sign = liveness.Sign(self.agent.name)
        self.sign.renew(
            worker=self.agent.name,
            incarnation=self.agent.incarnation,
            is_paused=self.agent.loop.is_paused,
            is_stopping=self.agent.is_stopping,
        )
