"""The working directory of a command: empty at first, private, and removed afterwards."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from workers import processes

UNLOCKED_SECONDS = 60.0
"""A new working directory is not locked at once: a younger one is left alone."""


@contextlib.contextmanager
def made(execution_id: str, attempt: int) -> Iterator[str]:
    """Make one and remove it in the end. Raises OSError."""
    prefix = processes.work_dir_prefix(execution_id, attempt)
    with (
        tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as work_dir,
        _locked(work_dir),
    ):
        yield work_dir


def remove_left() -> int:
    """Remove the working directories of workers that were killed; returns how many.

    Called at the start of a worker. A directory in use is locked, and the kernel releases the lock
    of a dead process.
    """
    removed = 0
    for work_dir in Path(tempfile.gettempdir()).glob(processes.work_dir_prefix("*") + "*"):
        with contextlib.suppress(OSError):  # in use, another user's, or being removed already
            if time.time() - work_dir.stat().st_mtime > UNLOCKED_SECONDS:
                with _locked(str(work_dir)):
                    shutil.rmtree(work_dir, ignore_errors=True)
                removed += 1
    return removed


@contextlib.contextmanager
def _locked(work_dir: str) -> Iterator[None]:
    """Lock it. Raises BlockingIOError if another process, or thread, holds it."""
    descriptor = os.open(work_dir, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)
