"""Start services as child processes, restart those that die, and end them all together.

Each child leads its own session, so that a Ctrl-C in the terminal reaches only the supervisor,
which then stops the children properly. None outlives it: see `guardian`.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import psutil

from orchestrator.core import private_files
from orchestrator.core.errors import MusterError
from orchestrator.drills import guardian

LONGEST_BACK_OFF_SECONDS = 30.0
SETTLED_SECONDS = 30.0
"""A service that lived this long is restarted at once, regardless of earlier deaths."""

EXIT_DECLARED_LOST = 70
"""Exit status of a worker that was declared lost: it can be restarted at once."""

FAILED_STARTS = 3
"""After so many deaths at its start, and no life beyond it, a service is given up."""

BY_OTHERS = (-signal.SIGKILL, -signal.SIGTERM)
"""Exit statuses of what somebody ended: they say nothing about its start."""

LAST_LINES = 8
LARGEST_LOG_BYTES = 10_000_000
POLL_SECONDS = 0.05


class AnotherRuns(MusterError):
    """Another supervisor uses this data directory."""


class NeverStarts(MusterError):
    """A service dies whenever it is started."""

    def __init__(self, child: Child) -> None:
        assert child.death is not None
        times = f" {child.failed_starts} times" if child.failed_starts > 1 else ""
        when = " at its start" if child.failed_starts and not child.has_started else ""
        lines = last_lines(child.log_path, LAST_LINES) or ["(nothing)"]
        super().__init__(
            f"{child.service.name} died{times}{when} ({child.death.cause}). "
            f"{child.log_path} ends with:\n  " + "\n  ".join(lines)
        )


@dataclass(frozen=True, kw_only=True)
class Service:
    """A command to run, and its name."""

    name: str
    command: Sequence[str]
    restarts: bool = True


@dataclass(frozen=True)
class Death:
    """The end of a child that nobody stopped."""

    name: str
    exit_status: int
    """Negative: the signal that killed it."""
    again_in_seconds: float | None
    """None when it is not started again."""
    last_words: str
    """The end of its log."""

    @property
    def cause(self) -> str:
        if self.exit_status == EXIT_DECLARED_LOST:
            return "exit 70: it was declared lost"
        if self.exit_status < 0:
            return f"killed by {signal.Signals(-self.exit_status).name}"
        return f"exit {self.exit_status}"


@dataclass
class Child:
    """A service and the process that runs it now, if one does."""

    service: Service
    log_path: Path
    process: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0
    """By the monotonic clock, as all times here."""
    start_at: float = 0.0
    restarts: int = 0
    short_lives: int = 0
    failed_starts: int = 0
    has_started: bool = False
    """It lived longer than a start takes, once."""
    death: Death | None = None

    @property
    def pid(self) -> int | None:
        return self.process.pid if self.process is not None else None

    @property
    def age_seconds(self) -> float:
        return time.monotonic() - self.started_at

    @property
    def never_starts(self) -> bool:
        return self.failed_starts >= FAILED_STARTS and not self.has_started

    def note_death(self, exit_status: int) -> Death:
        """Decide if and when the child is started again."""
        self.process = None
        if self.age_seconds >= SETTLED_SECONDS or exit_status == EXIT_DECLARED_LOST:
            self.has_started = True
        elif exit_status not in BY_OTHERS:
            self.failed_starts += 1
        again_in_seconds = None
        if self.service.restarts:
            again_in_seconds = self._back_off(exit_status)
            self.start_at = time.monotonic() + again_in_seconds
        self.death = Death(
            self.service.name, exit_status, again_in_seconds, last_line(self.log_path)
        )
        return self.death

    def _back_off(self, exit_status: int) -> float:
        if self.age_seconds >= SETTLED_SECONDS or exit_status == EXIT_DECLARED_LOST:
            self.short_lives = 0
            return 0.0
        self.short_lives += 1
        return float(min(2 ** (self.short_lives - 1), LONGEST_BACK_OFF_SECONDS))


class Supervisor:
    """Child processes. The owner calls `look` a few times a second."""

    def __init__(
        self,
        services: Sequence[Service],
        *,
        log_dir: Path,
        work_dir: Path,
        environment: Mapping[str, str],
    ) -> None:
        private_files.make_directory(log_dir)
        self.mark = secrets.token_hex(8)
        self._environment = {**environment, guardian.VARIABLE: self.mark}
        self._work_dir, self._log_dir = work_dir, log_dir
        self._guardian: subprocess.Popen[bytes] | None = None
        self.children = {
            service.name: Child(service, log_dir / f"{service.name}.log") for service in services
        }

    def start(self) -> None:
        self._watch_over()
        for child in self.children.values():
            self._start(child)

    def add(self, service: Service) -> None:
        """Start one more service, and keep it running like the others."""
        child = Child(service, self._log_dir / f"{service.name}.log")
        self.children[service.name] = child
        self._start(child)

    def look(self) -> list[Death]:
        """Note the deaths since the last look, and restart children whose time has come.

        Raises NeverStarts.
        """
        self._watch_over()
        deaths = []
        for child in self.children.values():
            if child.process is not None:
                exit_status = child.process.poll()
                if exit_status is not None:
                    _kill_group(child.process.pid)
                    deaths.append(child.note_death(exit_status))
            if child.never_starts:
                raise NeverStarts(child)
            if child.process is None and child.service.restarts:
                self._restart_when_due(child)
        return deaths

    def stop(
        self, *, grace_seconds: float, is_urgent: Callable[[], bool] = lambda: False
    ) -> list[str]:
        """Send SIGTERM to all at once, and SIGKILL to the rest after the grace, or when it gets
        urgent.

        Returns the names of those that had to be killed.
        """
        until = time.monotonic() + grace_seconds
        for child in self._living():
            # a stopped process handles its SIGTERM only after SIGCONT
            _send(child, signal.SIGTERM)
            _send(child, signal.SIGCONT)
        while list(self._living()) and time.monotonic() < until and not is_urgent():
            time.sleep(POLL_SECONDS)
        killed = [child.service.name for child in self._living()]
        for child in self._living():
            self.signal_tree(child.service.name, signal.SIGKILL)
        for child in self.children.values():
            if child.process is not None:
                child.process.wait()
                _kill_group(child.process.pid)
        self._dismiss_guardian()
        return killed

    def signal_tree(self, name: str, number: signal.Signals) -> None:
        """Send a signal to a service's process and to all its descendants."""
        pid = self.children[name].pid
        if pid is None:
            return
        with suppress(psutil.Error):
            process = psutil.Process(pid)
            for one in [process, *process.children(recursive=True)]:
                with suppress(psutil.Error):
                    one.send_signal(number)

    def _living(self) -> Iterator[Child]:
        for child in self.children.values():
            if child.process is not None and child.process.poll() is None:
                yield child

    def _start(self, child: Child) -> None:
        with _opened_log(child.log_path) as log:
            child.process = subprocess.Popen(
                child.service.command,
                cwd=self._work_dir,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        child.started_at = time.monotonic()
        self._name_services()

    def _restart_when_due(self, child: Child) -> None:
        if time.monotonic() >= child.start_at:
            child.restarts += 1
            self._start(child)

    def _watch_over(self) -> None:
        """Start a guardian, also after somebody killed it."""
        if self._guardian is not None and self._guardian.poll() is None:
            return
        self._close_pipe()
        self._guardian = subprocess.Popen(
            [sys.executable, guardian.__file__, self.mark],
            stdin=subprocess.PIPE,
            start_new_session=True,
            bufsize=0,
        )
        self._name_services()

    def _name_services(self) -> None:
        """Let the guardian know which processes are services now."""
        pids = [str(child.pid) for child in self.children.values() if child.pid is not None]
        if self._guardian is not None and self._guardian.stdin is not None:
            with suppress(OSError):  # it was killed: the next one is told
                self._guardian.stdin.write(f"{' '.join(pids)}\n".encode())

    def _dismiss_guardian(self) -> None:
        """Let the guardian end what was left behind, such as an action's own children."""
        self._close_pipe()
        if self._guardian is not None:
            self._guardian.wait()

    def _close_pipe(self) -> None:
        if self._guardian is not None and self._guardian.stdin is not None:
            self._guardian.stdin.close()


@contextmanager
def alone(directory: Path) -> Iterator[None]:
    """Lock this data directory against other supervisors. Raises AnotherRuns."""
    with open(directory / "supervisor.lock", "a", opener=private_files.opener) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AnotherRuns(
                f"Another `manage.py up` or `demo` runs on {directory}. "
                "Stop it, or choose another directory."
            ) from None
        yield


def last_line(path: Path) -> str:
    """The last non-empty line of a log."""
    return next(iter(last_lines(path, 1)), "")


def last_lines(path: Path, count: int) -> list[str]:
    """The last non-empty lines of a log, without reading all of it."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 4_000))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return []
    return [line.rstrip() for line in lines if line.strip()][-count:]


def _opened_log(path: Path) -> IO[bytes]:
    """Open a log to append; a large one is first moved aside, over the previous one."""
    if path.exists() and path.stat().st_size > LARGEST_LOG_BYTES:
        path.replace(path.with_suffix(".log.1"))
    return open(path, "ab", opener=private_files.opener)


def _kill_group(leader_pid: int) -> None:
    """Kill what a dead child left behind in its group."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader_pid, signal.SIGKILL)


def _send(child: Child, number: signal.Signals) -> None:
    if child.process is not None:
        child.process.send_signal(number)
