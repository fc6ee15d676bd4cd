"""Make the outcome of an execution from how its command or process ended."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from django.conf import settings

from orchestrator.core.reasons import Reason
from workers.isolated import results
from workers.runtimes.kept import signal_name
from workers.runtimes.protocol import Call, Outcome, completed, deferred, failed, timed_out

NOT_NOW = f"The command ended with exit code {os.EX_TEMPFAIL}: it cannot begin now."
EXCEEDED = {
    "memory": (Reason.MEMORY_LIMIT_EXCEEDED, "Its processes used more memory than {} MiB."),
    "processes": (Reason.PROCESS_LIMIT_EXCEEDED, "It had more than {} processes at once."),
    "output": (Reason.OUTPUT_LIMIT_EXCEEDED, "It wrote more than {} MiB to an output stream."),
    "cpu": (Reason.CPU_LIMIT_EXCEEDED, "A process used more than {} s of processor time."),
    "file_size": (Reason.FILE_SIZE_LIMIT_EXCEEDED, "It wrote a file larger than {} MiB."),
}
LIMIT_NAMES = {
    "memory": "memory_mb",
    "processes": "processes",
    "output": "output_mb",
    "cpu": "cpu_seconds",
    "file_size": "file_size_mb",
}


@dataclass(frozen=True)
class Ended:
    """The end of a command."""

    return_code: int | None
    """As of `subprocess`; None if its keeper was killed, or if there was nothing to execute."""
    launch_errno: int
    was_stopped: bool
    """True if it was stopped at its time limit."""
    exceeded: str
    """The limit that ended it: `memory`, `processes`, `output`, `cpu`, `file_size`, or none."""
    left: int
    """The number of processes that outlived it in sessions of their own."""
    details: dict[str, Any]
    """The part of the result that is the same for every kind of end."""
    result: bytes
    """Its result, as JSON."""


class Rules(Protocol):
    """The part of a `command.Command` that decides its outcome."""

    @property
    def argv(self) -> Sequence[str]: ...
    @property
    def result(self) -> str: ...
    @property
    def limits(self) -> Mapping[str, float]: ...
    @property
    def detached(self) -> str: ...


def conclude(call: Call, command: Rules, ended: Ended) -> Outcome:
    """Derive the outcome of an execution from the end of its command."""
    details = ended.details
    if ended.launch_errno:
        return failed(_cannot_execute(command.argv[0], ended.launch_errno), **details)
    if ended.was_stopped:
        return timed_out(call, **details)
    if ended.exceeded:
        return beyond_limit(ended.exceeded, command.limits, details)
    if ended.return_code is None:
        message = (
            "The process that kept the command within its limits was killed, and the command "
            "with it."
        )
        return failed(message, by="worker", reason=Reason.PROCESS_LOST, **details)
    if ended.return_code == os.EX_TEMPFAIL and call.defers_on_75:
        return deferred(NOT_NOW, **details | _result_if_any(command, ended))
    if ended.return_code != 0:
        return failed(_ended_badly(ended.return_code), **details | _result_if_any(command, ended))
    if ended.left and command.detached == "fail":
        return processes_left(ended.left, details)
    if command.result == "none":
        return completed(details)
    try:
        return completed({"result": results.from_json(ended.result)} | details)
    except results.NotStorable as error:
        return failed(str(error), **details)


def beyond_limit(exceeded: str, limits: Mapping[str, float], details: Mapping[str, Any]) -> Outcome:
    """Make the outcome of an action that was ended at a limit: one of `EXCEEDED`."""
    reason, message = EXCEEDED[exceeded]
    name = LIMIT_NAMES[exceeded]
    most = limits.get(name, getattr(settings.MUSTER, f"action_{name}", 0))
    message = f"{message.format(f'{most:g}')} That is its limit, `{name}`; it was ended there."
    return failed(message, reason=reason, **details)


def processes_left(number: int, details: Mapping[str, Any]) -> Outcome:
    """Make the outcome of an action that left processes in sessions of their own."""
    message = (
        f"The action ended, and left {number} of its processes running in sessions of their own. "
        "They were killed. If that is as it should be, the action's options say `detached: kill`."
    )
    return failed(message, reason=Reason.PROCESSES_LEFT, **details)


def _result_if_any(command: Rules, ended: Ended) -> dict[str, Any]:
    """The result that a failed command has nevertheless given."""
    if command.result != "none" and ended.result:
        with contextlib.suppress(results.NotStorable):
            return {"result": results.from_json(ended.result)}
    return {}


def _ended_badly(return_code: int) -> str:
    if return_code < 0:
        return f"The command was killed by {signal_name(-return_code)}."
    return f"The command ended with exit code {return_code}."


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
