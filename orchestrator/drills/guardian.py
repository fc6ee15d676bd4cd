"""Ends every process that a supervisor started, once that supervisor is gone.

A program of its own: `guardian.py MARK`, with a pipe as standard input whose other end only the
supervisor holds. However the supervisor ends, by `kill -9` too, the pipe closes, and whatever
carries the mark in its environment is killed: services, pool children, and what actions started.
Who cleared its environment is found in the session or process group of one that did not.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator

import psutil

VARIABLE = "MSTR_SUPERVISOR"
"""Inherited by all that a supervisor starts. Not `MUSTER_...`: those are settings."""

ROUNDS = 50
PAUSE_SECONDS = 0.02


def main(mark: str) -> None:
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, signal.SIG_IGN)
    while os.read(sys.stdin.fileno(), 1):
        pass
    # what is killed may have forked a moment before: look until nothing is left
    for _ in range(ROUNDS):
        left = list(marked(mark))
        if not left:
            return
        for process in left:
            try:
                process.kill()
            except psutil.Error:
                continue
        time.sleep(PAUSE_SECONDS)


def marked(mark: str) -> Iterator[psutil.Process]:
    """The live processes that carry the mark, and all in the sessions and groups they lead."""
    found: list[psutil.Process] = []
    others: list[psutil.Process] = []
    for process in psutil.process_iter():
        if process.pid == os.getpid():
            continue
        (found if _carries(process, mark) else others).append(process)
    leaders = {process.pid for process in found}
    return (p for p in [*found, *(o for o in others if _led_by(o, leaders))] if _lives(p))


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
    """A zombie is over: it only waits for its parent to look."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


if __name__ == "__main__":
    main(sys.argv[1])
