"""The function that a pool child runs: it launches an action, which can be interrupted.

SIGTERM interrupts the action, in whichever process it is, and leaves the child alive; the action's
`finally` blocks run. An action that does not stop is killed after the grace: a trusted one with the
child.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType

import structlog

from orchestrator.core.reasons import Reason
from workers import hiding, processes, runtimes
from workers.runtimes import Call, Outcome, limits, warm

log = structlog.get_logger(__name__)


def run(call: Call) -> Outcome:
    """Run the action to its end; an interrupted one leaves no processes behind.

    What the action gets leaves this process here, in the call, and what comes back of it enters
    here, in the outcome. It does not begin too late: the loop that feeds a pool of processes may
    have been kept meanwhile.
    """
    try:
        if time.monotonic() > call.begin_by:
            return runtimes.not_begun()
        outcome = _launch(call)
        if outcome.reason == Reason.CANCELLED_RUNNING:
            processes.terminate(
                call.execution_id, call.attempt, grace_seconds=call.cancel_grace_seconds
            )
        return outcome
    except Exception as error:  # a runtime that cannot be loaded; a thread pool would not report it
        log.exception("runtime failed", runtime=call.runtime, execution_id=call.execution_id)
        return runtimes.failed(f"Runtime {call.runtime} failed: {error!r}."[:2000], by="worker")


def _launch(call: Call) -> Outcome:
    try:
        with hiding.of(call.secrets), _interruptible():
            return runtimes.run(call)
    except limits.Interrupted:  # outside of the action itself
        return runtimes.interrupted()


def nothing() -> None:
    """Do nothing: the errand of an idle pool child that is probed."""


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield  # a thread is interrupted in another way
        return
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _interrupt(number: int, frame: FrameType | None) -> None:
    if not warm.interrupt_here():
        raise limits.Interrupted
