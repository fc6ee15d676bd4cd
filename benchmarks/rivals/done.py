"""The end of a run, seen where a system cannot be asked: each task appends a byte to a file. It
costs about a microsecond."""

from __future__ import annotations

import os
from functools import cache

PATH = os.environ.get("RIVAL_DONE", "")


def mark() -> None:
    os.write(_file(os.getpid()), b".")


def begin() -> None:
    os.close(os.open(PATH, os.O_WRONLY | os.O_CREAT | os.O_TRUNC))


def is_finished(*, count: int) -> bool:
    return os.stat(PATH).st_size >= count


def ready() -> None:
    """Say what the stage waits for."""
    print("ready.", flush=True)


@cache
def _file(process: int) -> int:
    return os.open(PATH, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
