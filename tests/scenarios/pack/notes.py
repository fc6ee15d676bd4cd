"""An action that writes down when it starts and ends: one JSON line each, appended to a file."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from typing import Any


def note(
    *, journal: str, label: str = "", seconds: float = 0, busy: bool = False, children: int = 0
) -> dict[str, Any]:
    """Start so many children in sessions of their own, and wait or keep the processor busy."""
    _write(journal, "start", label)
    for _ in range(children):
        command = ["setsid", "sh", "-c", "sleep 60 & sleep 60"]
        subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until = time.monotonic() + seconds
    while busy and time.monotonic() < until:
        pass
    time.sleep(max(0.0, until - time.monotonic()))
    _write(journal, "end", label)
    return {"label": label, "pid": os.getpid()}


def _write(journal: str, event: str, label: str) -> None:
    line = {
        "event": event,
        "label": label,
        # known in a pool child; threads share one environment, so there it is not
        "execution": os.environ.get("MSTR_EXECUTION_ID"),
        "attempt": int(os.environ.get("MSTR_ATTEMPT", 0)),
        "pid": os.getpid(),
        "at": time.time(),
    }
    # one write to a file opened for appending: lines of different processes never mix
    with open(journal, "ab", buffering=0) as file:
        file.write(json.dumps(line).encode() + b"\n")


def kill_worker(*, journal: str, label: str = "") -> None:
    """Kill the worker around this pool child, as an action that breaks its machine would."""
    _write(journal, "start", label)
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(10)
