"""Check that SQLite files can be written: `write_probe.py SECONDS FILE...`, exit status 0 if so.

A separate process: POSIX locks belong to a process, and closing any descriptor of a file drops all
of them, so a process that uses the embedded broker must not open its files a second time.
"""

from __future__ import annotations

import contextlib
import fcntl
import sqlite3
import sys
import time
from pathlib import Path

FIRST_BYTE = 0
"""The byte of a broker's lock file that is its mutex, taken around each write."""


def main(seconds: float, paths: list[str]) -> int:
    until = time.monotonic() + seconds
    for path in paths:
        if Path(f"{path}.lock").exists() and not _mutex_is_free(f"{path}.lock", until):
            return 1
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
            db.execute(f"PRAGMA busy_timeout = {int(max(0.0, until - time.monotonic()) * 1000)}")
            try:
                db.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                return 1
            db.execute("ROLLBACK")
    return 0


def _mutex_is_free(path: str, until: float) -> bool:
    with Path(path).open("r+b") as file:
        while time.monotonic() < until:
            with contextlib.suppress(BlockingIOError, PermissionError):
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, FIRST_BYTE)
                return True
            time.sleep(0.005)
    return False


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), sys.argv[2:]))
