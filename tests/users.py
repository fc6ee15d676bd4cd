"""Users for tests that change them, which only root can."""

from __future__ import annotations

import os
import pwd
import sys
from pathlib import Path

import pytest

OTHER = "nobody"

needs_root = pytest.mark.skipif(
    os.geteuid() != 0 or sys.platform != "linux", reason="only root can change users"
)

# in a mount namespace of its own, the folder that is closed to others holds nothing but the
# interpreter, and is open
REACHABLE = """
set -e
closed=$1 kept=$2 place=$3
shift 3
mkdir -p "$place"
mount --bind "$closed" "$place"
mount -t tmpfs -o mode=755 none "$closed"
mkdir -p "$kept"
mount --bind "$place${kept#"$closed"}" "$kept"
exec "$@"
"""


def uid() -> int:
    return pwd.getpwnam(OTHER).pw_uid


def reachable(place: Path) -> list[str]:
    """A wrapper for a command, in whose view all users can execute this interpreter. `place` is a
    folder for its use."""
    python = Path(sys.executable).resolve()
    folders = [folder for folder in reversed(python.parents) if not folder.stat().st_mode & 1]
    if not folders:
        return []
    closed, kept = folders[0], python.parents[1]
    inside = place / "closed"
    return ["unshare", "--mount", "sh", "-c", REACHABLE, "sh", str(closed), str(kept), str(inside)]
