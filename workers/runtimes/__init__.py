"""Running an action: `run(call)` and nothing else. A module for each kind of runtime.

Runs in a child or a thread of the worker's pool, touches neither database nor broker, and never
raises for what an action does: however it ends, it ends as an Outcome.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

from orchestrator.reasons import Reason

MODULES = {
    "python": "workers.runtimes.python",
    "shell": "workers.runtimes.shell",
}
OFFERED = tuple(MODULES)
"""What a worker can run, as it tells the fleet."""


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
    """How much is kept of each output stream of a shell action."""
    cancel_grace_seconds: float
    """From SIGTERM to SIGKILL, and from one interruption of a Python action to the next."""


@dataclass(frozen=True)
class Outcome:
    """How the attempt ended: an event of the state machine, a Reason code, and the result."""

    event: str
    """`complete`, `fail` or `time_out`."""
    reason: str
    result: dict[str, Any]


def run(call: Call) -> Outcome:
    """Run the action to its end, or to its time limit. A result is always ready to be stored:
    plain JSON without NUL characters, lone surrogates or NaN."""
    try:
        module = importlib.import_module(MODULES[call.runtime])
    except KeyError:
        offered = ", ".join(OFFERED)
        return failed(
            f"This worker has no runtime {call.runtime!r}; it has: {offered}.", by="worker"
        )
    outcome: Outcome = module.run(call)
    return outcome


def completed(result: dict[str, Any]) -> Outcome:
    return Outcome("complete", Reason.SUCCEEDED.value, result)


def failed(
    message: str, *, by: str = "action", reason: Reason = Reason.ACTION_FAILED, **details: Any
) -> Outcome:
    """`by` says who is to blame: `action`, or `worker` if the action could not even begin."""
    return Outcome("fail", reason.value, _explained(reason, message, by) | details)


def timed_out(call: Call, **details: Any) -> Outcome:
    message = f"The action was stopped at its time limit of {call.timeout_seconds:g} s."
    explained = _explained(Reason.RUN_TIMEOUT, message, "worker")
    return Outcome("time_out", Reason.RUN_TIMEOUT.value, explained | details)


def _explained(reason: Reason, message: str, by: str) -> dict[str, Any]:
    return {"error": reason.text, "message": message, "failed_by": by}
