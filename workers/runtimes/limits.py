"""Time limits, and interruption, of code in this process.

In a process of its own (prefork) the alarm signal interrupts Python code and system calls alike. A
thread has no such signal: an exception is set for it, which it sees when it next runs Python code.
A thread that is stuck in a system call or in C code cannot be stopped at all; the sweep ends its
execution, and the pool lacks the thread until the call returns.
"""

from __future__ import annotations

import contextlib
import ctypes
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType
from uuid import UUID

_raise_in_thread = ctypes.pythonapi.PyThreadState_SetAsyncExc
_raise_in_thread.argtypes = [ctypes.c_ulong, ctypes.py_object]
_NOTHING = ctypes.py_object()

IDLE_SECONDS = 3600.0


class Interrupted(BaseException):
    """The action was interrupted. Not an Exception: `except Exception` must not swallow it."""


class TimeLimitReached(Interrupted):
    """The action ran longer than its time limit."""


@contextlib.contextmanager
def limit(name: str, *, timeout_seconds: float, again_seconds: float) -> Iterator[None]:
    """Raise TimeLimitReached in the body at its limit, and again every `again_seconds` in case the
    body caught it: once for a clean end, then for code that ignores it.

    `name` identifies the body for `interrupt`: see `name_of`.
    """
    on_main_thread = threading.current_thread() is threading.main_thread()
    arm = _by_alarm if on_main_thread else _by_watcher
    with arm(name, timeout_seconds, max(again_seconds, 0.1)):
        yield


def name_of(execution_id: UUID | str, attempt: int) -> str:
    """The name of one attempt among all that this process runs."""
    return f"{execution_id}.{attempt}"


def interrupt(name: str) -> bool:
    """Raise Interrupted in the thread of this process that runs it; returns False if there is none.

    Only for threads: a pool child is interrupted by a signal, or killed.
    """
    return _watcher.interrupt(name)


@contextlib.contextmanager
def _by_alarm(name: str, timeout_seconds: float, again_seconds: float) -> Iterator[None]:
    def on_alarm(number: int, frame: FrameType | None) -> None:
        raise TimeLimitReached

    before = signal.signal(signal.SIGALRM, on_alarm)
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, timeout_seconds, again_seconds)
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        # again: the alarm may have gone off just before the line that stops it
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def _by_watcher(name: str, timeout_seconds: float, again_seconds: float) -> Iterator[None]:
    limit = _Limit(name, time.monotonic() + timeout_seconds, again_seconds)
    try:
        try:
            _watcher.arm(limit)
            yield
        finally:
            _watcher.disarm(limit)
    finally:
        # again: the exception may have come just before the line that disarms it
        _watcher.disarm(limit)


class _Limit:
    def __init__(self, name: str, due: float, again_seconds: float) -> None:
        self.name = name
        self.due = due
        self.again_seconds = again_seconds
        self.thread_id = threading.get_ident()
        self.firing = False
        self.disarmed = False

    def fire(self, exception: type[Interrupted]) -> None:
        self.firing = True
        try:
            if not self.disarmed:
                _raise_in_thread(self.thread_id, exception)
        finally:
            self.firing = False


class _Watcher:
    """One thread that watches the limits of all others, started when first needed."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._limits: dict[int, _Limit] = {}
        self._thread: threading.Thread | None = None
        self._wakes_at = 0.0

    def arm(self, limit: _Limit) -> None:
        with self._changed:
            if self._thread is None or not self._thread.is_alive():  # it does not survive a fork
                self._thread = threading.Thread(target=self._watch, name="time-limits", daemon=True)
                self._thread.start()
            self._limits[limit.thread_id] = limit
            if limit.due < self._wakes_at:
                self._changed.notify()

    def disarm(self, limit: _Limit) -> None:
        """Disarm without a lock: the exception may come while one is held, which would never be
        released."""
        limit.disarmed = True
        self._limits.pop(limit.thread_id, None)
        while limit.firing:
            time.sleep(0)
        # an exception that was set and not yet raised must not come after the body
        _raise_in_thread(limit.thread_id, _NOTHING)

    def interrupt(self, name: str) -> bool:
        with self._changed:
            limits = list(self._limits.values())
            limits_of_name = [limit for limit in limits if limit.name == name]
            for limit in limits_of_name:
                limit.fire(Interrupted)
        return bool(limits_of_name)

    def _watch(self) -> None:
        with self._changed:
            while True:
                now = time.monotonic()
                limits = list(self._limits.values())
                for limit in limits:
                    if limit.due <= now:
                        limit.due = now + limit.again_seconds
                        limit.fire(TimeLimitReached)
                self._wakes_at = min([now + IDLE_SECONDS, *(limit.due for limit in limits)])
                self._changed.wait(self._wakes_at - now)


_watcher = _Watcher()
