"""Cancellation of single attempts: SIGTERM to all processes of one, after a grace SIGKILL."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections import OrderedDict
from typing import TYPE_CHECKING

import psutil
import structlog
from django.conf import settings

from workers import processes, runtimes
from workers.runtimes import limits, warm

if TYPE_CHECKING:
    from orchestrator.core.states import AttemptKey
    from workers.attempts import Attempt
    from workers.host import Host

log = structlog.get_logger(__name__)

POLL_SECONDS = 0.05
MOST_REMEMBERED = 10_000


class Canceller:
    """Cancels attempts of one worker. May be used from any thread."""

    def __init__(self, agent: Host) -> None:
        self.agent = agent
        self._early: OrderedDict[AttemptKey, None] = OrderedDict()
        self._lock = threading.Lock()

    def cancel(self, key: AttemptKey) -> None:
        """Stop one attempt. A second call is harmless. An attempt that is not here (yet) is
        remembered, as its dispatch may come after its cancel. Raises RuntimeError if no thread can
        be started."""
        attempt = self.agent.desk.claimed.get(key)
        if attempt is None:
            with self._lock:
                self._early[key] = None
                while len(self._early) > MOST_REMEMBERED:
                    self._early.popitem(last=False)
            return
        if not attempt.is_canceling:
            attempt.is_canceling = True
            try:
                threading.Thread(target=self._stop, args=(attempt,), daemon=True).start()
            except RuntimeError:  # no thread can be started: the next call tries again
                attempt.is_canceling = False
                raise

    def came_early(self, key: AttemptKey) -> bool:
        """Return True if this attempt was cancelled before it was claimed; only once for each."""
        if not self._early:
            return False
        with self._lock:
            if key not in self._early:
                return False
            del self._early[key]
            return True

    def kill(self, attempt: Attempt) -> None:
        """End at once the process or thread of this attempt; the pool then reports its end."""
        if self.agent.pool_kind == "prefork":
            self._signal_child(attempt, signal.SIGKILL)
        elif _is_in_process(attempt):
            name = limits.name_of(*attempt.key)
            warm.kill(name)
            limits.interrupt(name)

    def _stop(self, attempt: Attempt) -> None:
        grace_seconds = settings.MUSTER.cancel_grace_seconds
        kill_at = time.monotonic() + grace_seconds
        stop = self._stop_in_child if self.agent.pool_kind == "prefork" else self._stop_in_thread
        if not _is_in_process(attempt):
            stop = self._stop_processes
        # it may have a slot and not have started: repeat until it is over
        while self._runs(attempt):
            stop(attempt, kill_at)
            self._wait(attempt)

    def _stop_processes(self, attempt: Attempt, kill_at: float) -> None:
        grace_seconds = max(0.0, kill_at - time.monotonic())
        processes.terminate(str(attempt.execution_id), attempt.number, grace_seconds=grace_seconds)

    def _stop_in_child(self, attempt: Attempt, kill_at: float) -> None:
        """Stop an action through its pool child, which is interrupted (see `workers.child`), then
        killed; the pool replaces it."""
        if attempt.worker_pid is None:
            return
        self._signal_child(attempt, signal.SIGTERM)
        for process in processes.find(str(attempt.execution_id), attempt.number):
            with contextlib.suppress(psutil.Error):
                process.terminate()
        self._wait(attempt, kill_at)
        self._signal_child(attempt, signal.SIGKILL)

    def _stop_in_thread(self, attempt: Attempt, kill_at: float) -> None:
        name = limits.name_of(*attempt.key)
        if warm.interrupt(name) or limits.interrupt(name):
            grace_seconds = max(settings.MUSTER.cancel_grace_seconds, 0.1)
            self._wait(attempt, time.monotonic() + grace_seconds)

    def _runs(self, attempt: Attempt) -> bool:
        return self.agent.desk.claimed.get(attempt.key) is attempt

    def _wait(self, attempt: Attempt, until: float = 0.0) -> None:
        """Wait until it is over, or the time is up; at least for a moment."""
        time.sleep(POLL_SECONDS)
        while self._runs(attempt) and time.monotonic() < until:
            time.sleep(POLL_SECONDS)

    def _signal_child(self, attempt: Attempt, number: signal.Signals) -> None:
        """Signal on the loop's thread, which feeds the pool: between check and signal, the child
        cannot get another action."""

        def send() -> None:
            if self._runs(attempt) and attempt.worker_pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(attempt.worker_pid), number)

        self.agent.loop.call_soon(send)


def _is_in_process(attempt: Attempt) -> bool:
    """Return True if it is stopped through the pool's child or thread that launched it."""
    action = attempt.execution.action
    return runtimes.in_process(action.runtime, action.runtime_options)
