"""End every process that a supervisor started, once that supervisor is gone.

A separate program: `guardian.py MARK`, with a pipe as standard input whose other end only the
supervisor holds. A line of it has the process ids of the present services, as nobody may read their
environment. When the supervisor ends, even by `kill -9`, the pipe closes, and the services are
killed, with all in their sessions and process groups, and all processes with the mark in their
environment.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Collection, Iterable, Iterator

import psutil

VARIABLE = "MSTR_SUPERVISOR"
"""Inherited by all processes of a supervisor. Not `MUSTER_...`: those are settings."""

ROUNDS = 50
PAUSE_SECONDS = 0.02


def main(mark: str) -> None:
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, signal.SIG_IGN)
    services: list[psutil.Process] = []
    for line in sys.stdin:
        services = list(_processes(map(int, line.split())))
    # a killed process may have forked a moment before: look until nothing is left
    for _ in range(ROUNDS):
        left = list(marked(mark, services))
        if not left:
            return
        for process in left:
            try:
                process.kill()
            except psutil.Error:
                continue
        time.sleep(PAUSE_SECONDS)


def _processes(pids: Iterable[int]) -> Iterator[psutil.Process]:
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            yield psutil.Process(pid)


def marked(mark: str, services: Collection[psutil.Process] = ()) -> Iterator[psutil.Process]:
    """Find the live processes that are services or have the mark, and all in the sessions and
    groups that they lead."""
    with_mark: list[psutil.Process] = []
    others: list[psutil.Process] = []
    for process in psutil.process_iter():
        if process.pid == os.getpid():
            continue
        is_ours = process in services or _carries(process, mark)
        (with_mark if is_ours else others).append(process)
    leaders = {process.pid for process in [*with_mark, *services]}
    return (p for p in [*with_mark, *(o for o in others if _led_by(o, leaders))] if _lives(p))


def _carries(process: psutil.Process, mark: str) -> bool:
    try:
        return process.environ().get(VARIABLE) == mark
    except (psutil.Error, OSError):  # gone, or another user's
        return False


def _led_by(process: psutil.Process, leaders: set[int]) -> bool:
    try:
        return bool({os.getsid(process.pid), os.getpgid(process.pid)} & leaders)
    except OSError:
        return False


def _lives(process: psutil.Process) -> bool:
    """Return False for a zombie too: it only waits for its parent."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


if __name__ == "__main__":
    main(sys.argv[1])
