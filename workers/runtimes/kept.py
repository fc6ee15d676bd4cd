"""The start of what runs below a keeper: the keeper's command line, limits, environment.

A command, a warm process and a sensor are all children of a keeper (see `keeper`), which holds them
to these limits and ends them when the worker ends.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from django.conf import settings

from orchestrator.core import isolation
from orchestrator.core.packs import fetching

KEEPER = Path(__file__).with_name("keeper.py")
MIB = 1_048_576
KEEPERS_SHARE = 0.9
"""Part of the grace: the keeper kills what is left before a cancelling worker kills the keeper."""


def why_not() -> str:
    """The reason why nothing can be run below a keeper here; empty if it can."""
    return isolation.why_not(isolation.of_processes())


def command_line(
    argv: Sequence[str],
    limits: Mapping[str, float],
    report_fd: int,
    *,
    afterwards: Sequence[str] = (),
) -> list[str]:
    """The command line of the keeper: isolated and without site, ten milliseconds instead of
    thirty."""
    python = [sys.executable, "-I", "-S", str(KEEPER)]
    pairs = ",".join(f"{name}={number:.15g}" for name, number in limits.items())
    return [*python, str(report_fd), str(os.getpid()), pairs, "\n".join(afterwards), *argv]


def give_to_action(work_dir: str) -> dict[str, float]:
    """Let the user of actions have this directory; returns what the keeper has to know to run a
    command as that user, who is kept from the worker's memory in any case."""
    run_as = isolation.user()
    if run_as is None:
        return {"drop_ptrace": 1}
    os.chown(work_dir, run_as.pw_uid, run_as.pw_gid)
    return {"drop_ptrace": 1, "uid": run_as.pw_uid, "gid": run_as.pw_gid}


def limits_of(limits: Mapping[str, float], *, grace_seconds: float) -> dict[str, float]:
    """The limits of an action, completed by the installation's, as the keeper takes them: bytes
    and seconds."""
    values: dict[str, float] = {
        "grace_seconds": grace_seconds * KEEPERS_SHARE,
        "processes": limits.get("processes", settings.MUSTER.action_processes),
        "memory_bytes": limits.get("memory_mb", settings.MUSTER.action_memory_mb) * MIB,
    }
    for name in ("address_space", "file_size"):
        if f"{name}_mb" in limits:
            values[f"{name}_bytes"] = limits[f"{name}_mb"] * MIB
    values |= {name: limits[name] for name in ("cpu_seconds", "open_files") if name in limits}
    return values


def clean_environment(work_dir: str, pack_path: str) -> dict[str, str]:
    """The environment that every process of an action gets, with nothing of the worker's own."""
    # a release has the files of its digest, and no others: Python must write none beside them
    of_release = {"PYTHONDONTWRITEBYTECODE": "1"} if fetching.is_of_release(pack_path) else {}
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "LANG": "C.UTF-8",
        "HOME": work_dir,
        "TMPDIR": work_dir,
        "MSTR_PACK_PATH": str(Path(pack_path).resolve()),
        **of_release,
    }


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
