"""What a runtime is, what it is asked, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from orchestrator.core import packs
from orchestrator.core.reasons import Reason


@dataclass(frozen=True)
class Call:
    """One attempt at one execution: all that a runtime needs to know. Picklable."""

    execution_id: str
    attempt: int
    action_ref: str
    runtime: str
    entry_point: str | list[str]
    parameters: dict[str, Any]
    timeout_seconds: float
    pack_path: str
    output_limit_bytes: int
    """How much is kept of each output stream of an action."""
    cancel_grace_seconds: float
    """From SIGTERM to SIGKILL, and from one interruption of a Python action to the next."""
    options: dict[str, Any] = field(default_factory=dict)
    """What the action says to its runtime."""
    limits: dict[str, Any] = field(default_factory=dict)
    """What its processes may use, where the action says more than the installation does."""

    @property
    def pack(self) -> str:
        """The name of its pack."""
        return self.action_ref.partition(".")[0]


@dataclass(frozen=True)
class Outcome:
    """How the attempt ended: an event of the state machine, a Reason code, and the result."""

    event: str
    """`complete`, `fail` or `time_out`."""
    reason: str
    result: dict[str, Any]


class Runtime(Protocol):
    """What a runtime is: a module, or any object, with these two functions.

    An entry point of the group `muster.runtimes` adds one; its name is what an action's `runtime`
    says. One that has `in_process = False` runs its actions in processes that carry the markers of
    `workers.processes`, and is cancelled by ending those; others by ending the pool's child.
    """

    def why_not(self) -> str:
        """Why this worker cannot offer it, in words for an operator; empty if it can. Asked once,
        when the worker starts."""
        ...

    def run(self, call: Call) -> Outcome:
        """Run the action to its end, or to its time limit. Whatever it raises fails the execution,
        and blames the worker."""
        ...


def completed(result: dict[str, Any]) -> Outcome:
    return Outcome("complete", Reason.SUCCEEDED.value, result)


def failed(
    message: str, *, by: str = "action", reason: Reason = Reason.ACTION_FAILED, **details: Any
) -> Outcome:
    """`by` says who is to blame: `action`, or `worker` if the action could not even begin."""
    return Outcome("fail", reason.value, _explained(reason, message, by) | details)


def unavailable(call: Call, why: str, *, missing: str = "") -> Outcome:
    """This host lacks the code, so the action did not begin: it goes elsewhere, which counts for no
    policy. `missing` is the name of the pack if it lacks all of it, and not this action alone."""
    return failed(
        why, by="worker", reason=Reason.PACK_UNAVAILABLE, missing=missing or call.action_ref
    )


def not_loaded(call: Call, error: str) -> Outcome:
    """An import of its entry point found no such module or function: by what is missing, if that
    can be seen."""
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
