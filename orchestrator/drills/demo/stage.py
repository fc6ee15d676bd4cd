"""The stage of the demo: a data directory that is wiped first, and times short enough to watch."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from django.core.management import CommandError

from orchestrator.core import private_files
from orchestrator.drills.supervisor import AnotherRuns, alone

TIMES: Mapping[str, str] = {
    "MUSTER_HEARTBEAT_INTERVAL_SECONDS": "1",
    "MUSTER_STALENESS_MULTIPLIER": "5",
    "MUSTER_WORKER_QUEUE_TTL_MS": "6000",
    "MUSTER_START_GRACE_SECONDS": "10",
    "MUSTER_MAINTENANCE_INTERVAL_SECONDS": "1",
    "MUSTER_SHUTDOWN_TIMEOUT_SECONDS": "5",
}
"""Each is much longer in an installation: see `settings/muster.py`."""

SERVERS = ("DATABASE_URL", "BROKER_URL", "REDIS_URL")

MARKER = ".muster-demo"
"""A directory that holds this file was made by a demo, so a demo may wipe it."""


def enter(directory: Path, arguments: list[str]) -> NoReturn:
    """Start this program again in an empty directory with the demo's environment, as a process
    reads its settings once. Raises CommandError if the directory has content that no demo made."""
    private_files.make_directory(directory)
    if any(directory.iterdir()) and not (directory / MARKER).exists():
        raise CommandError(
            f"{directory} is not empty and was not made by a demo: it will not be wiped. "
            "Name another: --data-dir"
        )
    try:
        with alone(directory):
            _wipe(directory)
    except AnotherRuns as error:
        raise CommandError(str(error)) from None
    os.execve(sys.executable, [sys.executable, *arguments], _environment(directory))  # noqa: S606


def remove_broker(directory: Path) -> None:
    """Remove the queues, which are empty now: their short TTL would not match other settings."""
    for path in directory.glob("broker.db*"):
        path.unlink()


def _wipe(directory: Path) -> None:
    for path in directory.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name not in (MARKER, "supervisor.lock"):
            path.unlink()
    private_files.make(directory / MARKER)


def _environment(directory: Path) -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in SERVERS and not name.startswith("MUSTER_")
    }
    return {**kept, **TIMES, "MUSTER_DATA_DIR": str(directory), "PYTHONUNBUFFERED": "1"}
