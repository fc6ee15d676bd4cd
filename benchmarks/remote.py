"""A process with the settings of one party, which does what the benchmark asks.

`python -m benchmarks.remote MODULE FD` imports a party's module and answers calls that come
through the socket FD: (function, keywords) -> (whether it returned, what it returned or raised).
One call more than the module has: `wait`.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import socket
import subprocess
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
POLL_SECONDS = 0.02
PATIENCE_SECONDS = 300.0


class BenchmarkError(Exception):
    """The measured system did not do its work, so there is no figure."""


class Remote:
    """Our end of such a process."""

    def __init__(self, module: str, environment: dict[str, str], directory: Path) -> None:
        ours, theirs = socket.socketpair()
        with theirs, (directory / "remote.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.remote", module, str(theirs.fileno())],
                env=environment,
                cwd=REPOSITORY,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self._module = module
        self._link = Connection(ours.detach())

    def ask(self, name: str, **keywords: Any) -> None:
        """Let it begin; `answer` must follow."""
        self._link.send((name, keywords))

    def answer(self) -> Any:
        """The value that the call returned. Raises BenchmarkError with what it raised."""
        try:
            if not self._link.poll(PATIENCE_SECONDS):
                raise BenchmarkError(f"{self._module}: no answer in {PATIENCE_SECONDS:.0f} s")
            returned, answer = self._link.recv()
        except EOFError:
            raise BenchmarkError(f"{self._module}: the process ended") from None
        if not returned:
            raise BenchmarkError(f"{self._module}: {answer}")
        return answer

    def call(self, name: str, **keywords: Any) -> Any:
        self.ask(name, **keywords)
        return self.answer()

    def close(self) -> None:
        self._link.close()  # it ends when nobody asks any more
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def wait(module: ModuleType, *, count: int, within_seconds: float) -> float:
    """Wait until the party has finished `count`; the monotonic time at which it was seen."""
    until = time.monotonic() + within_seconds
    while not module.is_finished(count=count):
        if time.monotonic() > until:
            raise BenchmarkError(f"{count} not finished within {within_seconds:.0f} s")
        time.sleep(POLL_SECONDS)
    return time.monotonic()


def main() -> None:
    link = Connection(socket.socket(fileno=int(sys.argv[2])).detach())
    try:
        module: ModuleType | None = importlib.import_module(sys.argv[1])
        problem = ""
    except ImportError as error:
        module, problem = None, f"{error} (make bench installs requirements-bench.txt)"
    with contextlib.suppress(EOFError):
        while True:
            name, keywords = link.recv()
            try:
                if module is None:
                    raise BenchmarkError(problem)
                if name == "wait":
                    answer: tuple[bool, Any] = (True, wait(module, **keywords))
                else:
                    answer = (True, getattr(module, name)(**keywords))
            except Exception as error:  # noqa: BLE001 - whatever it is, the caller is told
                answer = (False, f"{type(error).__name__}: {error}")
            link.send(answer)
    sys.stdout.flush()
    os._exit(0)  # threads of a rival's library must not keep it


if __name__ == "__main__":
    main()
