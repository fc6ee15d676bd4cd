"""Users for tests that change them, which only root can."""

from __future__ import annotations

import os
import pwd
import shlex
import sys
from pathlib import Path

import pytest

OTHER = "nobody"
REPOSITORY = Path(__file__).parents[1]

needs_root = pytest.mark.skipif(
    os.geteuid() != 0 or sys.platform != "linux", reason="only root can change users"
)


def uid() -> int:
    return pwd.getpwnam(OTHER).pw_uid


def reachable(place: Path) -> list[str]:
    """A wrapper for a command, in whose view all users can reach this interpreter and this
    repository. `place` is a folder for its use.

    In a mount namespace of its own, each folder above them that is closed to others holds nothing
    but them, and is open.
    """
    closed: dict[Path, list[Path]] = {}
    for wanted in (Path(sys.executable).resolve().parents[1], REPOSITORY):
        if folder := next((up for up in reversed(wanted.parents) if not _is_open(up)), None):
            closed.setdefault(folder, []).append(wanted)
    if not closed:
        return []
    steps = ["set -e", "umask 022"]
    for number, (folder, inside) in enumerate(closed.items()):
        kept = place / f"closed-{number}"
        steps += [
            shlex.join(["mkdir", "-p", str(kept)]),
            shlex.join(["mount", "--bind", str(folder), str(kept)]),
            shlex.join(["mount", "-t", "tmpfs", "-o", "mode=755", "none", str(folder)]),
        ]
        for wanted in inside:
            original = kept / wanted.relative_to(folder)
            steps += [
                shlex.join(["mkdir", "-p", str(wanted)]),
                shlex.join(["mount", "--bind", str(original), str(wanted)]),
            ]
    steps += ['cd "$PWD"', 'exec "$@"']
    return ["unshare", "--mount", "sh", "-c", "\n".join(steps), "sh"]


def _is_open(folder: Path) -> bool:
    return bool(folder.stat().st_mode & 0o001)
