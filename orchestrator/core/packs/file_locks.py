"""Locks among the processes of a host."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from orchestrator.core import private_files
from orchestrator.core.errors import MusterError

POLL_SECONDS = 0.05


class Taken(MusterError):
    """Another process of this host has the lock."""


@contextlib.contextmanager
def held(path: Path, *, until: float) -> Iterator[int]:
    """Hold the lock of a file, waiting for it until this time of `time.monotonic`; gives its
    descriptor. The system frees it when this process, and who inherits the descriptor, are gone.
    Raises Taken and OSError."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, private_files.FILE)
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise Taken from None
                time.sleep(POLL_SECONDS)
        yield descriptor
    finally:
        os.close(descriptor)
