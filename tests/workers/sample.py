"""Actions for the tests of the runtimes, one for each way to end."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import Any


def give(**parameters: Any) -> Any:
    return parameters["value"]


def give_object() -> Any:
    return object()


def give_nan() -> Any:
    return {"ratio": float("nan")}


def give_nested() -> Any:
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    return nested


def raise_value_error() -> None:
    raise ValueError("bad \0 value \ud800")


def fail_with(*, text: str) -> None:
    raise ValueError(text)


def say(*, texts: list[str]) -> None:
    """Each on its own: what is printed in pieces belongs together all the same."""
    for text in texts:
        print(text, end="", flush=True)  # noqa: T201 - what an action may do
        sys.stderr.buffer.write(text.encode())


def print_slowly(*, lines: list[str]) -> None:
    for number, line in enumerate(lines):
        time.sleep(1.3 if number else 0)
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


def leave() -> None:
    sys.exit("enough")


def press_control_c() -> None:
    raise KeyboardInterrupt


def fork() -> None:
    """Ends in the child only; the parent reports what the child's exit code was."""
    pid = os.fork()
    if pid == 0:
        sys.exit(0)
    _, status = os.waitpid(pid, 0)
    raise RuntimeError(f"child exit code {os.waitstatus_to_exitcode(status)}")


def spin(*, started: str = "") -> None:
    if started:
        open(started, "w").close()
    while True:
        time.sleep(0.001)


def spin_and_swallow_once() -> None:
    for last in (False, True):
        try:
            spin()
        except BaseException:
            if last:
                raise


def markers_of_subprocess() -> str:
    return subprocess.check_output(["env"], text=True)


def spin_and_tidy(*, tidied: str, started: str) -> None:
    try:
        spin(started=started)
    finally:
        open(tidied, "w").close()
