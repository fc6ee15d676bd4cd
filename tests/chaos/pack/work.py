"""Actions that leave a trace: one line when they start, and one when they end or are stopped."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

from muster_client import TaskRejected


class Broken(Exception):
    """What this action does, always or at first."""


def work(*, trace: str, seconds: float) -> dict[str, Any]:
    return _work(trace, seconds)


def step(*, trace: str, seconds: float, number: int = 0, after: Any = None) -> dict[str, Any]:
    """Work as a step of a task: returns its number, and the number of what it came after."""
    return _work(trace, seconds, number=number, after=after)


def plan(*, trace: str, seconds: float, parts: int) -> dict[str, Any]:
    """Work that says how much more there is to do: one part each."""
    return _work(trace, seconds, cursor={"start": 0, "end": parts})


def flaky(*, trace: str, seconds: float, key: str, times: int) -> dict[str, Any]:
    """Work that fails at first, so many times for one key."""
    failures = [Path(f"{trace}.{key}.{number}") for number in range(times)]
    result = _work(trace, seconds)
    for failure in failures:
        if not failure.exists():
            failure.touch()
            raise Broken
    return result


def defer(*, trace: str, seconds: float) -> dict[str, Any]:
    """Say "not now" at first, before anything has begun; then work."""
    said = Path(f"{trace}.deferred.{os.environ['MSTR_EXECUTION_ID']}")
    if said.exists():
        return _work(trace, seconds)
    said.touch()
    _write(trace, "defer", None)
    raise TaskRejected("the first time is too early")


def fail(*, trace: str, seconds: float) -> None:
    _work(trace, seconds)
    raise Broken


def poison(*, trace: str, seconds: float) -> None:
    """Take the process along, as a fault of a library does."""
    _write(trace, "start", None)
    time.sleep(seconds)
    os.kill(os.getpid(), signal.SIGKILL)


def _work(trace: str, seconds: float, **more: Any) -> dict[str, Any]:
    result = {"mark": f"{os.environ['MSTR_EXECUTION_ID']}.{os.urandom(6).hex()}", **more}
    try:
        _write(trace, "start", None)
        time.sleep(seconds)
        _write(trace, "end", result)
    except BaseException:  # its time limit: the pool child lives on, the action does not
        _write(trace, "stop", None)
        raise
    return result


def _write(trace: str, event: str, result: dict[str, Any] | None) -> None:
    line = {
        "event": event,
        "execution": os.environ["MSTR_EXECUTION_ID"],
        "attempt": int(os.environ["MSTR_ATTEMPT"]),
        "pid": os.getpid(),
        "at": time.time(),
        "result": result,
    }
    # one write to a file opened for appending: lines of different processes never mix
    with open(trace, "ab", buffering=0) as file:
        file.write(json.dumps(line).encode() + b"\n")
