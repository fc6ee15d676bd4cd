"""Shell actions: a command as a list of arguments, never a line for a shell to interpret.

The command runs in a session of its own, dies with the worker's process, and gets

- its parameters as JSON on stdin, and those that its entry point names as arguments,
- an empty working directory, which is also HOME and TMPDIR, and is removed afterwards,
- an environment of PATH, LANG, HOME, TMPDIR, and `MSTR_EXECUTION_ID`, `MSTR_ATTEMPT`,
  `MSTR_ACTION`, `MSTR_PACK_PATH`; nothing of the worker's own.

A command with a slash in it that is not absolute is looked for in the pack's folder. Exit code 0
completes the execution, anything else fails it. At the time limit its processes get SIGTERM,
after the grace SIGKILL. When it ends by itself what is left of its process group is killed.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from orchestrator import placeholders
from workers import processes
from workers.runtimes import Call, Outcome, completed, failed, results, timed_out

LAUNCHER = Path(__file__).with_name("launch.py")
CHUNK_BYTES = 65_536
POLL_SECONDS = 0.05
LONGEST_WAIT_SECONDS = 3600.0
LAST_OUTPUT_SECONDS = 1.0
UNLOCKED_SECONDS = 60.0
"""A new working directory is not locked at once: that young, it is left alone."""


@dataclass
class Capture:
    """The beginning of an output stream. Reading goes on past the limit: a command whose output
    nobody takes would stand still."""

    limit_bytes: int
    kept: bytearray = field(default_factory=bytearray)
    total_bytes: int = 0

    def read(self, fd: int) -> bool:
        """Take what is there; False at the end of the stream."""
        try:
            chunk = os.read(fd, CHUNK_BYTES)
        except BlockingIOError:
            return True
        self.total_bytes += len(chunk)
        self.kept += chunk[: self.limit_bytes - len(self.kept)]
        return bool(chunk)

    @property
    def truncated(self) -> bool:
        return self.total_bytes > len(self.kept)

    @property
    def text(self) -> str:
        return results.text(self.kept.decode("utf-8", "replace"))


def run(call: Call) -> Outcome:
    started = time.monotonic()
    try:
        argv = placeholders.expand(_located(call), call.parameters)
    except placeholders.CannotExpand as error:
        return failed(str(error))
    try:
        with _work_dir(call) as work_dir:
            return _run(call, argv, work_dir, started)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return failed(f"The worker could not run the command: {error}.", by="worker")


def _located(call: Call) -> list[str]:
    command, *arguments = list(call.entry_point)
    if "/" in command and not placeholders.names(command):
        command = str(Path(call.pack_path).resolve() / command)
    return [command, *arguments]


@contextlib.contextmanager
def _work_dir(call: Call) -> Iterator[str]:
    prefix = processes.work_dir_prefix(call.execution_id, call.attempt)
    with (
        tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as work_dir,
        _locked(work_dir),
    ):
        yield work_dir


def remove_left_work_dirs() -> int:
    """Remove the working directories of workers that were killed; returns how many.

    For the start of a worker. One in use is locked, and the kernel drops the lock of who dies.
    """
    removed = 0
    for work_dir in Path(tempfile.gettempdir()).glob(processes.work_dir_prefix("*") + "*"):
        with contextlib.suppress(OSError):  # in use, another user's, or being removed already
            if time.time() - work_dir.stat().st_mtime > UNLOCKED_SECONDS:
                with _locked(str(work_dir)):
                    shutil.rmtree(work_dir, ignore_errors=True)
                removed += 1
    return removed


@contextlib.contextmanager
def _locked(work_dir: str) -> Iterator[None]:
    """Raises BlockingIOError if another process, or thread, holds it."""
    descriptor = os.open(work_dir, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def _run(call: Call, argv: list[str], work_dir: str, started: float) -> Outcome:
    captures = {name: Capture(call.output_limit_bytes) for name in ("stdout", "stderr")}
    error_read, error_write = os.pipe()
    # never waited for: a fork in another thread may hold the other end
    os.set_blocking(error_read, False)
    with os.fdopen(error_read, "rb", buffering=0) as launch_error, _stdin(call.parameters) as stdin:
        try:
            process = subprocess.Popen(
                _launched(argv, error_write),
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=work_dir,
                env=_environment(call, work_dir),
                start_new_session=True,
                pass_fds=[error_write],
                bufsize=0,
            )
        finally:
            os.close(error_write)
        with process:
            try:
                was_stopped = _follow(process, call, captures)
            except BaseException:
                # the worker itself is told to stop: nothing of the action may stay behind
                processes.terminate(
                    call.execution_id, call.attempt, grace_seconds=0, session_id=process.pid
                )
                raise
        errno_text = launch_error.read() or b""
    details = _details(process.returncode, captures, started)
    if errno_text:
        return failed(_cannot_execute(argv[0], int(errno_text)), **details)
    if was_stopped:
        return timed_out(call, **details)
    if process.returncode == 0:
        return completed(details)
    return failed(_ended_badly(process.returncode), **details)


def _launched(argv: list[str], error_fd: int) -> list[str]:
    """Isolated and without site: ten milliseconds instead of thirty."""
    python = [sys.executable, "-I", "-S", str(LAUNCHER)]
    return [*python, str(error_fd), str(os.getpid()), *argv]


@contextlib.contextmanager
def _stdin(parameters: Mapping[str, Any]) -> Iterator[IO[bytes]]:
    """A file rather than a pipe: nobody has to feed it, and a command need not read it."""
    with tempfile.TemporaryFile() as file:
        file.write(json.dumps(parameters).encode())
        file.seek(0)
        yield file


def _environment(call: Call, work_dir: str) -> dict[str, str]:
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "LANG": "C.UTF-8",
        "HOME": work_dir,
        "TMPDIR": work_dir,
        "MSTR_PACK_PATH": str(Path(call.pack_path).resolve()),
        **processes.markers(call.execution_id, call.attempt, call.action_ref),
    }


def _follow(process: subprocess.Popen[bytes], call: Call, captures: Mapping[str, Capture]) -> bool:
    """Take the output until the command has ended; True if it had to be stopped."""
    deadline = time.monotonic() + call.timeout_seconds
    stopping: threading.Thread | None = None
    with selectors.DefaultSelector() as selector, _end_of(process.pid) as end:
        for stream, name in ((process.stdout, "stdout"), (process.stderr, "stderr")):
            if stream is not None:
                os.set_blocking(stream.fileno(), False)
                selector.register(stream, selectors.EVENT_READ, captures[name])
        if end is not None:
            selector.register(end, selectors.EVENT_READ)
        while not _has_ended(process) or (stopping and stopping.is_alive()):
            left_seconds = deadline - time.monotonic()
            if stopping is None and left_seconds <= 0:
                stopping = _stop(process, call)
            polls = stopping is not None or end is None
            _take(selector, POLL_SECONDS if polls else min(left_seconds, LONGEST_WAIT_SECONDS))
        # before its pid is given back: until then the group can be no other
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        # a daemon may hold the pipes open: take what is there, and wait for nobody
        until = time.monotonic() + LAST_OUTPUT_SECONDS
        while _take(selector, 0) and time.monotonic() < until:
            pass
    return stopping is not None


def _take(selector: selectors.BaseSelector, wait_seconds: float) -> bool:
    """Take the output that is there, or comes in time; False if there is none."""
    ready = selector.select(wait_seconds)
    for key, _ in ready:
        if key.data is None or not key.data.read(key.fd):
            selector.unregister(key.fileobj)
    return bool(ready)


def _stop(process: subprocess.Popen[bytes], call: Call) -> threading.Thread:
    """In a thread, so that what the processes still write while they end is taken."""
    thread = threading.Thread(
        target=processes.terminate,
        args=(call.execution_id, call.attempt),
        kwargs={"grace_seconds": call.cancel_grace_seconds, "session_id": process.pid},
        daemon=True,
    )
    thread.start()
    return thread


@contextlib.contextmanager
def _end_of(pid: int) -> Iterator[int | None]:
    """A descriptor that becomes readable when the process ends, where the kernel has such."""
    try:
        descriptor = os.pidfd_open(pid)
    except (AttributeError, OSError):
        yield None
        return
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    if not hasattr(os, "waitid"):
        return process.poll() is not None
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _details(return_code: int, captures: Mapping[str, Capture], started: float) -> dict[str, Any]:
    """The part of the result that does not depend on how it ended."""
    killed = return_code < 0
    details: dict[str, Any] = {"exit_code": None if killed else return_code}
    if killed:
        details["signal"] = _signal_name(-return_code)
    for name, capture in captures.items():
        details |= {name: capture.text, f"{name}_truncated": capture.truncated}
    return details | {"duration_seconds": round(time.monotonic() - started, 3)}


def _ended_badly(return_code: int) -> str:
    if return_code < 0:
        return f"The command was killed by {_signal_name(-return_code)}."
    return f"The command ended with exit code {return_code}."


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _cannot_execute(command: str, number: int) -> str:
    shown = repr(command[:200])
    match number:
        case errno.ENOENT if not Path(command).exists():
            return f"Command not found: {shown}."
        case errno.ENOENT:
            return f"The interpreter that the first line of {shown} names does not exist."
        case errno.EACCES:
            return f"Command is not executable: {shown}."
        case errno.ENOEXEC:
            return f"Command is neither a program nor a script with a first line '#!...': {shown}."
        case _:
            return f"Command {shown} could not be executed: {os.strerror(number)}."
