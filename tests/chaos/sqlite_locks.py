"""Who holds the one write lock of an SQLite file, which outlives a SIGSTOP."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

WRITE_LOCK_BYTE = 120
"""WAL_WRITE_LOCK in the file's `-shm`: https://www.sqlite.org/walformat.html#wal_locks"""


def is_held_by(file: Path, pids: Collection[int]) -> bool:
    """Whether one of these processes holds the write lock of this file, which is in WAL mode."""
    index = file.with_name(f"{file.name}-shm")
    if not index.exists():
        return False
    inode = str(index.stat().st_ino)
    for line in Path("/proc/locks").read_text().splitlines():
        # 1: POSIX  ADVISORY  WRITE 25302 fe:00:1311 120 120
        _, kind, *_, mode, pid, place, first, last = line.split()
        if (kind, mode) != ("POSIX", "WRITE") or place.rpartition(":")[2] != inode:
            continue  # a lock that is waited for has the kind `->`
        if int(pid) in pids and int(first) <= WRITE_LOCK_BYTE <= float(last.replace("EOF", "inf")):
            return True
    return False
