"""An action that writes down when it starts and ends: one JSON line each, appended to a file."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from muster_client import TaskRejected


def note(
    *,
    journal: str,
    label: str = "",
    seconds: float = 0,
    busy: bool = False,
    children: int = 0,
    gate: str = "",
) -> dict[str, Any]:
    """Start so many children in sessions of their own, and wait or keep the processor busy; then
    wait until the file `gate` is there."""
    _write(journal, "start", label)
    for _ in range(children):
        command = ["setsid", "sh", "-c", "sleep 600 & sleep 600"]
        subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until = time.monotonic() + seconds
    while busy and time.monotonic() < until:
        pass
    time.sleep(max(0.0, until - time.monotonic()))
    while gate and not os.path.exists(gate):
        time.sleep(0.05)
    _write(journal, "end", label)
    return {"label": label, "pid": os.getpid()}


def press(
    *, journal: str, cold: str, label: str = "", after_seconds: float | None = None
) -> dict[str, Any]:
    """Say "not now" while the file `cold` is there."""
    if os.path.exists(cold):
        _write(journal, "defer", label)
        raise TaskRejected("the press is cold", after_seconds=after_seconds)
    return note(journal=journal, label=label)


def _write(journal: str, event: str, label: str) -> None:
    line = {
        "event": event,
        "label": label,
        # a trusted action that runs in a thread has none: all threads share one environment
        "execution": os.environ.get("MSTR_EXECUTION_ID"),
        "attempt": int(os.environ.get("MSTR_ATTEMPT", 0)),
        "pid": os.getpid(),
        "at": time.time(),
    }
    # one write to a file opened for appending: lines of different processes never mix
    with open(journal, "ab", buffering=0) as file:
        file.write(json.dumps(line).encode() + b"\n")


def kill_worker(*, journal: str, label: str = "") -> None:
    """Kill the worker above this process, as an action that breaks its machine would."""
    _write(journal, "start", label)
    os.kill(_worker_pid(), signal.SIGKILL)
    time.sleep(10)


def _worker_pid() -> int:
    """The topmost of the processes above this one that are of a worker."""
    pid, worker_pid = os.getppid(), 0
    while pid > 1:
        if b"worker\0--name" in Path(f"/proc/{pid}/cmdline").read_bytes():
            worker_pid = pid
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return worker_pid
