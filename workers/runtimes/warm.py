"""Functions in warm processes: one for each slot and pack, kept from one execution to the next.

The caller is a launcher: a child of the worker's pool, or one of its threads. It imports nothing of
a pack.

A process is used again if it ended its execution in order. One that was stopped, reached a limit or
left processes behind is ended, with all that it started.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import structlog
from django.conf import settings

from orchestrator.core.errors import MusterError
from orchestrator.core.reasons import Reason
from workers import hiding, processes
from workers.isolated import results
from workers.isolated.messages import LONGEST_BYTES, framed
from workers.runtimes import conclusions, kept, limits, live
from workers.runtimes.protocol import (
    Call,
    Outcome,
    failed,
    interrupted,
    not_loaded,
    raised,
    timed_out,
)
from workers.runtimes.warm_process import CHUNK_BYTES, GIVE_UP_SECONDS, Function, Kept, Warm

log = structlog.get_logger(__name__)

LOOKED_AFTER_SECONDS = 0.02
"""A function that runs for longer is looked at as closely as a command."""
MUTE_SECONDS = 1.0
"""A process that cannot answer any more ends within this time, or is ended."""
LONGEST_WAIT_SECONDS = 1.0
POLL_SECONDS = 0.02
OUT_OF_ORDER = frozenset({Reason.PACK_UNAVAILABLE, Reason.CANCELLED_RUNNING})
"""After these ends a process is not used again."""


class Garbled(MusterError):
    """The action's process gave an answer that is none."""


Concluding = Callable[[Call, Any], Outcome]
"""Makes the outcome of what the function returned."""


def run(call: Call, function: Function, concluding: Concluding) -> Outcome:
    """Call a function in a warm process, to its end or to its time limit. Only a result belongs to
    the function alone: other ends have `duration_seconds`."""
    started = time.monotonic()
    outcome = _run(call, function, concluding, stop_at=started + call.timeout_seconds)
    if outcome.event != "complete":
        outcome.result["duration_seconds"] = round(time.monotonic() - started, 3)
    return outcome


def _run(call: Call, function: Function, concluding: Concluding, *, stop_at: float) -> Outcome:
    launch = Launch(call, stop_at=stop_at)
    with launch.registered():
        try:
            process = launch.begin(function)
        except (OSError, subprocess.SubprocessError) as error:
            return failed(f"The worker could not start a process: {error}.", by="worker")
        is_in_order = False
        try:
            answer = launch.answer(process)
            if answer is None:
                return _without_answer(call, launch, process)
            left = launch.others(process)
            outcome = _outcome(call, launch, function, answer, concluding)
            is_in_order = not (launch.why_stopped or left or outcome.reason in OUT_OF_ORDER)
            return _unless_left(call, outcome, process, left)
        except Garbled as error:
            return failed(str(error))
        finally:
            launch.process = None  # first: who stops it from now on has said so, or signals nobody
            if is_in_order and not launch.why_stopped:
                _here.kept.put_back(function, process)
            else:
                process.end()


def interrupt(name: str) -> bool:
    """Stop the call of this name (see `limits.name_of`), and its process after the grace; returns
    False if this process makes none."""
    launch = _launches.get(name)
    if launch is not None:
        launch.stop("cancel")
    return launch is not None


def interrupt_here() -> bool:
    """The same for the call that this thread makes. Called by a signal handler."""
    launch = _here.launch
    if launch is not None:
        launch.stop("cancel")
    return launch is not None


def kill(name: str) -> None:
    """End the process of this call at once."""
    if (launch := _launches.get(name)) is not None:
        launch.kill()


# --- a call --------------------------------------------------------------------------------------


class Launch:
    """One call of a function. Other threads, and a signal handler, may stop it."""

    def __init__(self, call: Call, *, stop_at: float) -> None:
        self.call = call
        self.stop_at = stop_at
        self.why_stopped = ""
        """`time`, `cancel`, `output`, `answer` if that is too long, or nothing."""
        self.process: Warm | None = None
        self._give_up_at = self._look_at = float("inf")
        self._kill_at = 0.0
        """The end of the grace of a function that was stopped; 0 if there is none."""
        self._secrets = hiding.streams()
        self._room = settings.MUSTER.output_limit_bytes
        self._begun_at = time.monotonic()
        self._live: live.Live | None = None
        """Made when the function prints: few do."""

    @contextlib.contextmanager
    def registered(self) -> Iterator[None]:
        name = limits.name_of(self.call.execution_id, self.call.attempt)
        _launches[name] = _here.launch = self
        try:
            yield
        finally:
            _here.launch = None
            _launches.pop(name, None)

    def stop(self, why: str) -> None:
        """Ask the function to end, with all that it started; kill them after the grace."""
        if self.why_stopped:
            return
        self.why_stopped = why
        grace_seconds = self.call.cancel_grace_seconds * kept.KEEPERS_SHARE
        self._kill_at = time.monotonic() + grace_seconds
        if (process := self.process) is not None:
            process.signal(signal.SIGTERM)

    def kill(self, why: str = "cancel") -> None:
        self.why_stopped = self.why_stopped or why
        self._kill_at = 0.0
        self._give_up_at = min(self._give_up_at, time.monotonic() + GIVE_UP_SECONDS)
        if (process := self.process) is not None:
            process.signal(signal.SIGQUIT)

    def begin(self, function: Function) -> Warm:
        """Send the request to a process. Raises OSError or SubprocessError."""
        request = _request(self.call, function)
        process = _here.kept.take(function)
        if not process.send(request):
            process.end()  # it died while it waited, and has begun nothing
            process = Warm(function)
            process.send(request)
        self.process = process
        if self.why_stopped:  # before there was a process to stop
            process.signal(signal.SIGTERM)
        return process

    def answer(self, process: Warm) -> bytes | None:
        """Wait for the answer; None if the process ended without one."""
        self._look_at = time.monotonic() + LOOKED_AFTER_SECONDS
        while (answer := process.answer()) is None and not process.is_over:
            now = time.monotonic()
            if now >= self._give_up_at:
                process.end()
                break
            self._watch(process, now)
            due_at = min(self._give_up_at, self._look_at)
            due_at = min(due_at, (self._kill_at or now + 1) if self.why_stopped else self.stop_at)
            if self._live is not None:
                self._live.send(now)
                due_at = min(due_at, self._live.due_at)
            process.wait(min(max(due_at - now, 0.0), LONGEST_WAIT_SECONDS), self._take_output)
        self._print(b"", is_end=True)
        if self._live is not None:
            self._live.end()
        return answer

    def others(self, process: Warm) -> list[int]:
        """The processes that the function has left running. If it was stopped, those have the rest
        of the grace."""
        while (left := process.strays()) and self.why_stopped and time.monotonic() < self._kill_at:
            time.sleep(POLL_SECONDS)
        return left

    def _watch(self, process: Warm, now: float) -> None:
        if now >= self._look_at:
            is_kept = process.be_looked_after()
            self._look_at = float("inf") if is_kept else now + LOOKED_AFTER_SECONDS
        if process.is_mute:
            self._give_up_at = min(self._give_up_at, now + MUTE_SECONDS)
        if self.why_stopped:
            if 0 < self._kill_at <= now:
                self.kill()
            return
        if process.has_too_much_to_say:
            self.kill("answer")
        elif process.written_bytes > settings.MUSTER.action_output_mb * kept.MIB:
            self.kill("output")
        elif now >= self.stop_at:
            self.stop("time")

    def _take_output(self, written: bytes) -> None:
        """Take what the function printed. Its two streams are one here: the runner merges them."""
        if self._live is None:
            self._live = live.of(self.call, "stdout", begun_at=self._begun_at)
        if self._live is not None:
            self._live.feed(written)
        self._print(written)

    def _print(self, written: bytes, *, is_end: bool = False) -> None:
        """Write the beginning of what the function printed to the worker's log, without the secrets
        in it."""
        if self._room <= 0:
            return
        for secrets in self._secrets:
            written = secrets.feed(written) + (secrets.end() if is_end else b"")
        written = written[: self._room]
        self._room -= len(written)
        if not written:
            return
        lines = written.decode("utf-8", "replace").splitlines()
        log.info(
            "action wrote",
            action=self.call.action_ref,
            execution_id=self.call.execution_id,
            text="\n".join(map(_plain, lines)),
        )


def _plain(line: str) -> str:
    """A line that a terminal only shows: its other characters are escaped."""
    if line.isprintable():
        return line
    return "".join(c if c.isprintable() or c == "\t" else repr(c)[1:-1] for c in line)


def _request(call: Call, function: Function) -> bytes:
    marks = processes.markers(call.execution_id, call.attempt, call.action_ref)
    marks[processes.RETRIES] = str(call.retries)
    request = {
        "entry_point": function.entry_point,
        "parameters": function.parameters,
        "environment": {**function.environment, **marks},
        "limit_bytes": function.limit_bytes,
        "secrets": call.secrets,
    }
    return framed(json.dumps(request).encode())


# --- its outcome ---------------------------------------------------------------------------------


def _outcome(
    call: Call, launch: Launch, function: Function, written: bytes, concluding: Concluding
) -> Outcome:
    """The outcome of an answer. Raises Garbled."""
    if launch.why_stopped == "time":
        return timed_out(call)
    try:
        answer = results.from_json(written, limit_bytes=function.limit_bytes + CHUNK_BYTES)
        if "value" in answer:
            return concluding(call, answer["value"])
        if "interrupted" in answer:
            return interrupted()
        if "unavailable" in answer:
            return not_loaded(call, str(answer["unavailable"]))
        if "refused" in answer:
            return failed(str(answer["refused"]))
        return raised(answer)
    except (results.NotStorable, TypeError, KeyError):
        raise Garbled from None


def _unless_left(call: Call, outcome: Outcome, process: Warm, left: list[int]) -> Outcome:
    """The outcome, unless the function completed and left processes in sessions of their own."""
    detached = sum(process.has_left(pid) for pid in left)
    if not detached or outcome.event != "complete" or call.options.get("detached") == "kill":
        return outcome
    return conclusions.processes_left(detached, {"left_processes": detached})


def _without_answer(call: Call, launch: Launch, process: Warm) -> Outcome:
    process.end()
    exceeded = "output" if launch.why_stopped == "output" else process.report.get("exceeded", "")
    if exceeded:
        return conclusions.beyond_limit(exceeded, {}, {})
    match launch.why_stopped:
        case "time":
            return timed_out(call)
        case "cancel":
            return interrupted()
        case "answer":
            return failed(f"The action's process answered with more than {LONGEST_BYTES:,} bytes.")
    if number := int(process.report.get("errno", 0)):
        message = f"The worker could not execute {sys.executable}: {os.strerror(number)}."
        return failed(message, by="worker")
    if "status" not in process.report:
        return _lost("The process that kept it within its limits was killed, and it with it.")
    code = os.waitstatus_to_exitcode(int(process.report["status"]))
    if code < 0:
        return _lost(f"Its process was killed by {kept.signal_name(-code)}.")
    return failed(f"The action ended its process, with exit code {code}, and returned nothing.")


def _lost(message: str) -> Outcome:
    return failed(message, by="worker", reason=Reason.PROCESS_LOST)


class _Here(threading.local):
    """The state of one launcher: the call that it makes, and the processes that it keeps."""

    def __init__(self) -> None:
        self.launch: Launch | None = None
        self.kept = Kept()


_here = _Here()
_launches: dict[str, Launch] = {}
"""The calls that this process makes, by their names."""
