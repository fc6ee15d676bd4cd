"""Says where a thread of an executor stands that has been at one thing for too long, and which of
them fail again and again.

Whatever a thread waits for ends in time: a statement, a lock, a confirm. But several may follow on
one another; and no fault ends a thread, so that it goes on when the fault is gone. The process
around it lives meanwhile: its presence, and so `--ping`, say what is wrong.
"""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path

import structlog

from orchestrator.core import errors, words

log = structlog.get_logger(__name__)

LOOK_SECONDS = 1.0
LONG_SECONDS = 10.0
"""It is said after this time, and again whenever it has doubled."""
STUCK_SECONDS = 60.0
"""More than the time limits of several statements one after another."""
AGAIN_SECONDS = 5.0
"""A failure that comes within this time of the one before is the same trouble."""
MOST_CALLS = 10
LIBRARIES = {"site-packages", Path(threading.__file__).parent.name}
"""Folders of code that is not our own."""


class Watched(threading.Thread):
    """A thread that says since when it is busy, and how it fails."""

    busy_since = 0.0
    """By `time.monotonic`; 0 while it waits for something to do."""

    failing_since = failed_at = 0.0
    """The first and the latest of failures that follow closely on one another."""
    failure = ""

    def note_failure(self, error: Exception) -> None:
        """Note that it begins anew after this error."""
        now = time.monotonic()
        if now - self.failed_at > AGAIN_SECONDS:
            self.failing_since = now
        self.failed_at, self.failure = now, errors.kind_and_place(error)

    def trouble(self, now: float) -> str:
        """The thing that keeps it from its work at this time of `time.monotonic`, or nothing."""
        failing, busy = self.failed_at - self.failing_since, now - self.busy_since
        if failing >= LONG_SECONDS and now - self.failed_at <= AGAIN_SECONDS:
            return f"{self.name} has failed for {words.span(failing)}: {self.failure}"
        if self.busy_since and busy >= STUCK_SECONDS:
            return f"{self.name} has been at one thing for {words.span(busy)}"
        return ""


def trouble(threads: Iterable[Watched]) -> str:
    """All that keeps these threads from their work, in words; empty if nothing does."""
    now = time.monotonic()
    return "; ".join(filter(None, (thread.trouble(now) for thread in threads)))


class Stalls(threading.Thread):
    """Looks at these threads once a second."""

    def __init__(self, threads: Sequence[Watched]) -> None:
        super().__init__(name="muster-stalls", daemon=True)
        self.threads = threads
        self.stopping = threading.Event()
        self._told: dict[str, tuple[float, float]] = {}
        """By thread: since when it was busy as it was last told of, and for how long."""

    def run(self) -> None:
        while not self.stopping.wait(LOOK_SECONDS):
            self.look()

    def stop(self) -> None:
        self.stopping.set()
        self.join(timeout=10)

    def look(self) -> None:
        for thread in self.threads:
            if not (since := thread.busy_since):
                continue
            seconds = time.monotonic() - since
            told_since, told_seconds = self._told.get(thread.name, (0.0, 0.0))
            least = 2 * told_seconds if told_since == since else LONG_SECONDS
            if seconds >= least:
                self._told[thread.name] = since, seconds
                log.warning(
                    "a thread has been at one thing for long",
                    thread=thread.name,
                    seconds=round(seconds),
                    at=_stack(thread),
                )


def _stack(thread: Watched) -> list[str]:
    """The place where a thread stands, the innermost call first: that one, and those of our own
    code."""
    frame = sys._current_frames().get(thread.ident or 0)
    if frame is None:
        return []
    *outer, innermost = traceback.extract_stack(frame)
    ours = [call for call in outer if not LIBRARIES.intersection(Path(call.filename).parts)]
    calls = [*ours[1 - MOST_CALLS :], innermost]
    return [f"{call.name} ({_short(call.filename)}:{call.lineno})" for call in reversed(calls)]


def _short(filename: str) -> str:
    """The name of a file with that of its folder."""
    return "/".join(Path(filename).parts[-2:])
