"""The protocol of runtimes: the call, the outcome, and the runtime itself."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from orchestrator.core import isolation, json_values, packs
from orchestrator.core.executions import RETRY_AFTER
from orchestrator.core.models import Execution
from orchestrator.core.reasons import Reason

LONGEST_DELAY_SECONDS = 7 * 86_400.0
"""The latest time at which an action may ask to be run again."""


@dataclass(frozen=True)
class Call:
    """One attempt at one execution: all that a runtime needs to know, sent to a pool child."""

    execution_id: str
    attempt: int
    action_ref: str
    runtime: str
    entry_point: str | list[str]
    parameters: dict[str, Any] = field(repr=False)
    timeout_seconds: float
    pack_path: str
    output_limit_bytes: int
    """The most that is kept of each output stream of an action."""
    cancel_grace_seconds: float
    """From SIGTERM to SIGKILL, and from one interruption of a Python action to the next."""
    options: dict[str, Any] = field(default_factory=dict)
    """The action's settings for its runtime."""
    limits: dict[str, Any] = field(default_factory=dict)
    """Limits of its processes that the action sets; the others are the installation's."""
    secrets: tuple[str, ...] = field(default=(), repr=False)
    """Values that are masked in all that comes of it."""
    retries: int = 0
    """The attempts before this one that its policy counted."""
    isolation: str = isolation.PROCESS
    """The level at which this worker runs it."""
    token: str = field(default="", repr=False)
    """The token of its execution, if its action asks for one."""
    defers_on_75: bool = False
    """For a command: the exit status 75 says that it cannot begin now."""
    begin_by: float = math.inf
    """It does not begin after this; by `time.monotonic`, which is one clock for all processes of a
    machine."""

    @property
    def pack(self) -> str:
        """The name of its pack."""
        return self.action_ref.partition(".")[0]


@dataclass(frozen=True)
class Outcome:
    """The end of the attempt: an event of the state machine, a Reason code, and the result."""

    event: str
    """`complete`, `fail` or `time_out`."""
    reason: str
    result: dict[str, Any]


class Runtime(Protocol):
    """A runtime: a module, or any object, with these two functions.

    An entry point of the group `muster.runtimes` adds one; actions refer to it by its name. A
    runtime with `in_process = False` runs its actions in processes with the markers of
    `workers.processes`, and a cancel ends those. Any other runs them in the worker's own processes:
    it is for trusted actions only, and a cancel ends the pool's child.
    """

    def why_not(self) -> str:
        """The reason why this worker cannot offer it, for an operator; empty if it can. Called
        once, when the worker starts."""
        ...

    def run(self, call: Call) -> Outcome:
        """Run the action to its end, or to its time limit. Any exception fails the execution, with
        the worker to blame."""
        ...


def completed(result: dict[str, Any]) -> Outcome:
    return Outcome("complete", Reason.SUCCEEDED.value, result)


def failed(
    message: str, *, by: str = "action", reason: Reason = Reason.ACTION_FAILED, **details: Any
) -> Outcome:
    """Make the outcome of a failure. `by` is to blame: `action`, or `worker` if the action could
    not even begin."""
    return Outcome("fail", reason.value, _explained(reason, message, by) | details)


def raised(answer: Mapping[str, Any], **details: Any) -> Outcome:
    """Make the outcome of an exception: a failure, the wish for another attempt, or a deferral.
    `answer` is what `workers.isolated.functions` describes, and may be foreign."""
    details |= {name: str(answer[name]) for name in ("exception", "traceback")}
    message = str(answer["message"])
    if isinstance(asked := answer.get("task_rejected"), Mapping):
        return deferred(message, after_seconds=asked.get("after_seconds"))
    if not isinstance(asked := answer.get("try_again"), Mapping):
        return failed(message, **details)
    details |= _after(asked.get("after_seconds"))
    return failed(message, reason=Reason.TRY_AGAIN, **details)


def deferred(message: str, *, after_seconds: Any = None, **details: Any) -> Outcome:
    """Make the outcome of an action that cannot begin now: it has not begun, and is run later,
    which no policy counts. `after_seconds` may be foreign; None lets Muster choose."""
    details |= _after(after_seconds)
    return failed(message, reason=Reason.TASK_REJECTED, **details)


def _after(seconds: Any) -> dict[str, float]:
    """The wish for a delay as a part of a result, within bounds; empty if it is none."""
    if not json_values.is_number(seconds):
        return {}
    # bounded first: no float holds an integer of hundreds of digits
    bounded = float(min(max(seconds, 0), LONGEST_DELAY_SECONDS))
    return {} if math.isnan(bounded) else {RETRY_AFTER: bounded}


def interrupted(message: str = "The action was interrupted.") -> Outcome:
    """Make the outcome of an action that was stopped before its time limit."""
    return failed(message, by="worker", reason=Reason.CANCELLED_RUNNING)


def not_begun() -> Outcome:
    """Make the outcome of an action that reached its slot too late: it goes back to the backlog,
    uncounted."""
    return failed("It came to its slot too late.", by="worker", reason=Reason.GIVEN_BACK)


def unavailable(call: Call, why: str, *, missing: str = "") -> Outcome:
    """Make the outcome of an action whose code this host lacks: it did not begin, and goes
    elsewhere, which no policy counts. `missing` is the name of the pack if all of it is missing,
    not only this action."""
    return failed(
        why, by="worker", reason=Reason.PACK_UNAVAILABLE, missing=missing or call.action_ref
    )


def unavailable_result(execution: Execution, why: str) -> dict[str, Any]:
    """The result of an attempt whose release is not on this host."""
    pack = execution.action_ref.partition(".")[0]
    return _explained(Reason.PACK_UNAVAILABLE, why, "worker") | {"missing": pack}


def not_loaded(call: Call, error: str) -> Outcome:
    """Make the outcome of an import that found no such module or function; it names what is
    missing, if that can be seen."""
    if why := packs.missing_folder(call.pack_path):
        return unavailable(call, why, missing=call.pack)
    why = packs.missing_entry_point(call.runtime, call.entry_point, pack_path=call.pack_path)
    return unavailable(call, why or f"{packs.UNEXPLAINED}{error}")


def timed_out(call: Call, **details: Any) -> Outcome:
    message = f"The action was stopped at its time limit of {call.timeout_seconds:g} s."
    explained = _explained(Reason.RUN_TIMEOUT, message, "worker")
    return Outcome("time_out", Reason.RUN_TIMEOUT.value, explained | details)


def _explained(reason: Reason, message: str, by: str) -> dict[str, Any]:
    return {"error": reason.text, "message": message, "failed_by": by}
