"""The memory of Muster's own processes, which hold credentials.

Actions without a user of their own run as Muster's user, who may otherwise read the memory and the
environment of all processes of that user.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Collection

PR_SET_DUMPABLE = 4

CREDENTIALS = (
    "DATABASE_URL",
    "BROKER_URL",
    "BROKER_MANAGEMENT_URL",
    "REDIS_URL",
    "SECRET_KEY",
)
PREFIX = "MUSTER_"

ENVIRONMENT_BEGINS, ENVIRONMENT_ENDS = 47, 48
"""Fields of `/proc/PID/stat`, counted from the one after the command's name: see `proc(5)`."""


def hide() -> None:
    """Let no other process of this user read this one's memory and environment, or trace it.

    Its children inherit that until they execute another program. Root may do so all the same: from
    root, only what the environment said of credentials is hidden.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0)
        with contextlib.suppress(OSError):
            _hide_from_environ(credentials())


def credentials() -> list[str]:
    """The variables of the environment that are ours, and no action's."""
    return [name for name in os.environ if name in CREDENTIALS or name.startswith(PREFIX)]


def _hide_from_environ(names: Collection[str]) -> None:
    """Overwrite these variables where the kernel put them when this process was executed, as
    `/proc/PID/environ` shows that place for ever. `os.environ` keeps them."""
    for name in names:
        os.environ[name] = os.environ[name]
    wanted = {name.encode() for name in names}
    with open("/proc/self/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    begin, end = int(fields[ENVIRONMENT_BEGINS]), int(fields[ENVIRONMENT_ENDS])
    for entry in ctypes.string_at(begin, end - begin).split(b"\0"):
        if entry.partition(b"=")[0] in wanted:
            ctypes.memset(begin, 0, len(entry))
        begin += len(entry) + 1
