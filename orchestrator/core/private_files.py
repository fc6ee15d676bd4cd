"""Files and directories that only their owner reads: parameters, results and secrets are in them.

The mode is given when a file is made, whatever the process's umask is.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

FILE = 0o600
DIRECTORY = 0o700
OTHERS = 0o077

OURS = (
    "secret_key", "keyring", "admin_password", "api_token", "muster.db*", "broker.db*",
    "supervisor.lock", ".muster-demo", "logs", "alive", "drill", "environments",
)  # fmt: skip
"""The names that Muster makes in its data directory."""


def make_directory(path: Path) -> None:
    """Make a directory for its owner alone, and its parents; one that exists keeps its mode."""
    path.mkdir(mode=DIRECTORY, parents=True, exist_ok=True)


def make(path: Path) -> None:
    """Make an empty file, unless there is one."""
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, FILE))


def opener(path: str, flags: int) -> int:
    """The `opener` of `open`, for a file that may be new."""
    return os.open(path, flags, FILE)


def close_to_others(directory: Path) -> None:
    """Take from group and others what they may do with our files there.

    Files of an older version were made with the umask's mode. What others made, and files of
    another owner, are left alone; no link is followed.
    """
    for pattern in OURS:
        for path in directory.glob(pattern):
            _close(path)
            if path.is_dir() and not path.is_symlink():
                for parent, folders, files in os.walk(path):
                    for name in (*folders, *files):
                        _close(Path(parent, name))


def open_to_others(path: Path) -> bool:
    """Return True if group or others may do anything with it."""
    try:
        return bool(path.stat().st_mode & OTHERS)
    except OSError:
        return False  # gone, or behind a directory that is closed


def _close(path: Path) -> None:
    with suppress(OSError):  # gone, or another owner's
        mode = path.lstat().st_mode
        if mode & OTHERS and not stat.S_ISLNK(mode):
            path.chmod(stat.S_IMODE(mode) & ~OTHERS)
