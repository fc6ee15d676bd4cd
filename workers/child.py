"""What a pool child runs: an action that can be told to stop.

SIGTERM interrupts the action and leaves the child as it is; what the action began to do about it
in `finally` is done. Who does not listen is killed after the grace, with the child.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

import structlog

from orchestrator.core.reasons import Reason
from workers import processes, runtimes
from workers.runtimes import Call, Outcome, limits

log = structlog.get_logger(__name__)


def run(call: Call) -> Outcome:
    """Run the action to its end; what was interrupted leaves nothing behind."""
    try:
        with _interruptible():
            outcome = runtimes.run(call)
    except Exception as error:  # a runtime that cannot be loaded; a thread pool would keep silent
        log.exception("runtime failed", runtime=call.runtime, execution_id=call.execution_id)
        return runtimes.failed(f"Runtime {call.runtime} failed: {error!r}."[:2000], by="worker")
    except limits.Interrupted:  # outside of the action itself
        outcome = runtimes.failed(
            "The action was interrupted.", by="worker", reason=Reason.CANCELLED_RUNNING
        )
    if outcome.reason == Reason.CANCELLED_RUNNING:
        processes.terminate(
            call.execution_id, call.attempt, grace_seconds=call.cancel_grace_seconds
        )
    return outcome


def nothing() -> None:
    """What an idle pool child is asked to do, to see whether it does anything."""


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
    raise limits.Interrupted
