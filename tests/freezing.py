"""SIGSTOP that has happened when the call returns: the kernel stops threads one by one."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable
from pathlib import Path
from signal import SIGSTOP

import psutil

PATIENCE_SECONDS = 60.0
STANDS_STILL = frozenset("TtZX")
"""States in /proc: stopped, traced, and what has ended meanwhile."""


def freeze(processes: Iterable[psutil.Process]) -> None:
    """Stop these processes, and wait until each of their threads stands still."""
    frozen = list(processes)
    for process in frozen:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(SIGSTOP)
    until = time.monotonic() + PATIENCE_SECONDS
    while not all(stands_still(process.pid) for process in frozen):
        assert time.monotonic() < until, f"{frozen} still run {PATIENCE_SECONDS} s after SIGSTOP"
        time.sleep(0.001)


def stands_still(pid: int) -> bool:
    """Whether no thread of this process runs, where /proc tells."""
    for thread in Path(f"/proc/{pid}/task").glob("*/stat"):
        with contextlib.suppress(OSError):  # it has just ended
            # 25302 (name, which may hold anything) S ...
            if thread.read_text().rpartition(") ")[2][0] not in STANDS_STILL:
                return False
    return True
