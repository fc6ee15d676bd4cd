"""Run a command for a runtime: in its own session, under a keeper, within its limits.

Every command gets an empty working directory, which is also HOME and TMPDIR, and is removed
afterwards; and an environment of PATH, LANG, HOME, TMPDIR, the action's `env`, and
`MSTR_EXECUTION_ID`, `MSTR_ATTEMPT`, `MSTR_ACTION`, `MSTR_PACK_PATH`, `MSTR_RESULT_FILE`; nothing of
the worker's own. It ends when the worker's process ends, for any reason (see `keeper`).
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from django.conf import settings

from orchestrator.core import placeholders
from orchestrator.core.reasons import Reason
from workers import processes
from workers.isolated import results
from workers.runtimes import conclusions, kept, live, work_dirs
from workers.runtimes.capture import Capture
from workers.runtimes.conclusions import Ended
from workers.runtimes.protocol import Call, Outcome, failed

RESULT_FILE = "muster-result.json"
LONGEST_WAIT_SECONDS = 3600.0
POLL_SECONDS = 0.05
LAST_OUTPUT_SECONDS = 1.0
GIVE_UP_SECONDS = 5.0
"""A keeper that does not stop within its grace and this time is killed itself."""


class CannotRun(Exception):
    """The worker lacks something that the command needs."""

    def __init__(self, message: str, reason: Reason = Reason.ACTION_FAILED) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True)
class Command:
    """A command to run, and the rules for its outcome."""

    argv: list[str]
    stdin: bytes = b""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Added to what every command gets."""
    result: str = "none"
    """The place of the result: `none`, `last_line` of stdout, `file`."""
    limits: Mapping[str, float] = field(default_factory=dict)
    """As in the action; missing ones are the installation's."""
    detached: str = "fail"
    """Treatment of processes in other sessions that outlive the command: `fail` or `kill`."""
    as_action_user: bool = True
    """True: it runs as the user of `MUSTER_ACTION_USER`, if there is one."""
    afterwards: list[str] = field(default_factory=list)
    """A command that the keeper runs in the end if the worker, which would do it, is gone."""


def run(
    call: Call,
    prepare: Callable[[str], Command],
    *,
    concluding: Callable[[Call, Command, Ended], Outcome] | None = None,
) -> Outcome:
    """Run the command of `prepare(work_dir)` to its end, and return the outcome. `prepare` may
    raise CannotRun, and its time counts for the action."""
    started = time.monotonic()
    try:
        with work_dirs.made(call.execution_id, call.attempt) as work_dir:
            command = prepare(work_dir)
            ended = _execute(call, command, work_dir, started)
            return (concluding or conclusions.conclude)(call, command, ended)
    except placeholders.CannotExpand as error:
        return failed(str(error))
    except CannotRun as error:
        return failed(str(error), by="worker", reason=error.reason)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return failed(f"The worker could not run the command: {error}.", by="worker")


# --- running -----------------------------------------------------------------------------------


def _execute(call: Call, command: Command, work_dir: str, started: float) -> Ended:
    """Run it in that directory. Raises OSError, ValueError or SubprocessError if that fails."""
    most_bytes = int(command.limits.get("output_mb", settings.MUSTER.action_output_mb) * kept.MIB)
    captures = {
        name: Capture(
            call.output_limit_bytes, most_bytes, live=live.of(call, name, begun_at=started)
        )
        for name in ("stdout", "stderr")
    }
    captures["stdout"].keeps_last_line = command.result == "last_line"
    limits = kept.limits_of(command.limits, grace_seconds=call.cancel_grace_seconds)
    if command.as_action_user:
        limits |= kept.give_to_action(work_dir)
    report_read, report_write = os.pipe()
    # never block on it: a fork in another thread may hold the other end
    os.set_blocking(report_read, False)
    with os.fdopen(report_read, "rb", buffering=0) as reported, _file_of(command.stdin) as stdin:
        try:
            process = subprocess.Popen(
                kept.command_line(
                    command.argv, limits, report_write, afterwards=command.afterwards
                ),
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=work_dir,
                env=_environment(call, command, work_dir),
                start_new_session=True,
                pass_fds=[report_write],
                bufsize=0,
            )
        finally:
            os.close(report_write)
        with process:
            try:
                why_stopped = _follow(
                    process, call, captures, stop_at=started + call.timeout_seconds
                )
            except BaseException:
                # the worker itself is stopped: nothing of the action may stay behind
                _kill(process, call)
                raise
        report = dict(line.split() for line in (reported.read() or b"").decode().splitlines())
    if "status" not in report:
        # the keeper was killed, and its processes have no parent of ours any more
        processes.terminate(call.execution_id, call.attempt, grace_seconds=0)
    return _ended(command, report, captures, why_stopped, started, work_dir)


def _ended(
    command: Command,
    report: Mapping[str, str],
    captures: Mapping[str, Capture],
    why_stopped: str,
    started: float,
    work_dir: str,
) -> Ended:
    code = os.waitstatus_to_exitcode(int(report["status"])) if "status" in report else None
    exceeded = "output" if why_stopped == "output" else report.get("exceeded", "")
    details: dict[str, Any] = {"exit_code": code if code is not None and code >= 0 else None}
    if code is not None and code < 0:
        details["signal"] = kept.signal_name(-code)
    # or 128 more, by which a shell reports that a signal ended its command
    for name, number in (("cpu", signal.SIGXCPU), ("file_size", signal.SIGXFSZ)):
        limited = "cpu_seconds" if name == "cpu" else "file_size_mb"
        if limited in command.limits and code in (-number, 128 + number):
            exceeded = exceeded or name
    for name, capture in captures.items():
        capture.end()
        details |= {name: capture.text, f"{name}_truncated": capture.truncated}
    details["duration_seconds"] = round(time.monotonic() - started, 3)
    if "peak_bytes" in report:
        details["peak_memory_bytes"] = int(report["peak_bytes"])
    if left := int(report.get("left", 0)):
        details["left_processes"] = left
    return Ended(
        return_code=code,
        launch_errno=int(report.get("errno", 0)),
        was_stopped=why_stopped == "time",
        exceeded=exceeded,
        left=left,
        details=details,
        result=_result(command, captures["stdout"], work_dir),
    )


@contextlib.contextmanager
def _file_of(content: bytes) -> Iterator[IO[bytes]]:
    """Make a file for stdin: unlike a pipe, nobody has to feed it, and a command need not read it.

    In memory where that is possible: it may have secrets in it, which do not belong on a disk.
    """
    with _memory_file() as file:
        file.write(content)
        file.seek(0)
        yield file


def _memory_file() -> IO[bytes]:
    if sys.platform != "linux":
        return tempfile.TemporaryFile()
    return os.fdopen(os.memfd_create("muster-stdin"), "w+b")


def _environment(call: Call, command: Command, work_dir: str) -> dict[str, str]:
    return {
        **kept.clean_environment(work_dir, call.pack_path),
        "MSTR_RESULT_FILE": str(Path(work_dir) / RESULT_FILE),
        **command.environment,
        **processes.markers(call.execution_id, call.attempt, call.action_ref),
        processes.RETRIES: str(call.retries),
        **({processes.TOKEN: call.token} if call.token else {}),
    }


# --- following ---------------------------------------------------------------------------------


def _follow(
    process: subprocess.Popen[bytes],
    call: Call,
    captures: Mapping[str, Capture],
    *,
    stop_at: float,
) -> str:
    """Read the output until the keeper has ended. Returns why it was stopped: `time`, `output`, or
    ""."""
    give_up_at = stop_at + call.cancel_grace_seconds + GIVE_UP_SECONDS
    why_stopped = ""
    with selectors.DefaultSelector() as selector, processes.end_of(process.pid) as end:
        for stream, name in ((process.stdout, "stdout"), (process.stderr, "stderr")):
            if stream is not None:
                os.set_blocking(stream.fileno(), False)
                selector.register(stream, selectors.EVENT_READ, captures[name])
        if end is not None:
            selector.register(end, selectors.EVENT_READ)
        while process.poll() is None:
            now = time.monotonic()
            if now >= give_up_at:
                _kill(process, call)
                break
            if not why_stopped and any(capture.over for capture in captures.values()):
                why_stopped = "output"
                process.send_signal(signal.SIGQUIT)
                give_up_at = now + GIVE_UP_SECONDS
            elif not why_stopped and now >= stop_at:
                why_stopped = "time"
                process.terminate()
            due_at = give_up_at if why_stopped else stop_at
            for capture in captures.values():
                if capture.live is not None:
                    capture.live.send(now)
                    due_at = min(due_at, capture.live.due_at)
            longest = POLL_SECONDS if end is None else LONGEST_WAIT_SECONDS
            _take(selector, min(max(due_at - now, 0), longest))
        # an escaped process may hold the pipes open: read what is there, and do not wait
        until = time.monotonic() + LAST_OUTPUT_SECONDS
        while _take(selector, 0) and time.monotonic() < until:
            pass
    return why_stopped


def _take(selector: selectors.BaseSelector, wait_seconds: float) -> bool:
    """Read the output that is there, or comes in time; returns False if there is none."""
    ready = selector.select(wait_seconds)
    for key, _ in ready:
        if key.data is None or not key.data.read(key.fd):
            selector.unregister(key.fileobj)
    return bool(ready)


def _kill(process: subprocess.Popen[bytes], call: Call) -> None:
    """End the keeper with all its processes, in any state."""
    processes.terminate(call.execution_id, call.attempt, grace_seconds=0, session_id=process.pid)


def _result(command: Command, stdout: Capture, work_dir: str) -> bytes:
    if command.result == "last_line":
        return stdout.last_line
    if command.result != "file":
        return b""
    # the action made this file: it may be of any type, or a link
    with contextlib.suppress(OSError):
        descriptor = os.open(
            Path(work_dir) / RESULT_FILE, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
        )
        with os.fdopen(descriptor, "rb") as file:
            return file.read(results.LIMIT_BYTES + 1)
    return b""
