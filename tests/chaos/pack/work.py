"""Actions that leave a trace: one line when they start, and one when they end or are stopped."""

from __future__ import annotations

import json
import os
import time
from typing import Any


class Broken(Exception):
    """What this action always does."""


def work(*, trace: str, seconds: float) -> dict[str, Any]:
    try:
        _write(trace, "start")
        time.sleep(seconds)
        _write(trace, "end")
    except BaseException:  # its time limit: the pool child lives on, the action does not
        _write(trace, "stop")
        raise
    return {"pid": os.getpid()}


def fail(*, trace: str, seconds: float) -> None:
    work(trace=trace, seconds=seconds)
    raise Broken


def _write(trace: str, event: str) -> None:
    line = {
        "event": event,
        "execution": os.environ["MSTR_EXECUTION_ID"],
        "attempt": int(os.environ["MSTR_ATTEMPT"]),
        "pid": os.getpid(),
        "at": time.time(),
    }
    # one write to a file opened for appending: lines of different processes never mix
    with open(trace, "ab", buffering=0) as file:
        file.write(json.dumps(line).encode() + b"\n")
