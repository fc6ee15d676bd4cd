"""The action for a task message, and its execution as the queue's definition wants it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestrator.core import executions
from orchestrator.core.executions import NewExecution
from orchestrator.core.redaction import quoted
from orchestrator.queues.gates import codecs
from orchestrator.queues.gates.problems import Problem
from orchestrator.queues.gates.shape import TaskMessage
from orchestrator.queues.models import Gate

ANY = "*"
"""The classifier of messages whose own is not listed."""
DEFAULT_RETRY_LIMIT = 10
"""CAF's, for a queue that states none."""
CORRELATION_MAX = 100


def retry_limit(gate: Gate) -> int:
    limit = gate.queue.retry_limit
    return DEFAULT_RETRY_LIMIT if limit is None else limit


def fits(message: TaskMessage, *, gate: Gate) -> tuple[str, Mapping[str, Any], list[Problem]]:
    """Find the action of a message, its parameters, and what does not fit; see `judging.Fits`."""
    action_ref, problems = _action(message, gate)
    parameters: Mapping[str, Any] = {}
    try:
        parameters = codecs.decoded(message.data, codec=gate.codec)
    except ValueError as error:
        problems.append(Problem("/taskData", str(error)))
    if not problems:
        new = new_execution(message, gate=gate, action_ref=action_ref, parameters=parameters)
        problems = [
            Problem(_in_message(refusal.pointer), refusal.message)
            for refusal in executions.problems([new])
        ]
    return action_ref, parameters, problems


def _action(message: TaskMessage, gate: Gate) -> tuple[str, list[Problem]]:
    chosen = gate.classifiers.get(message.classifier) or gate.classifiers.get(ANY)
    own = gate.queue.action.ref if gate.queue.action else ""
    action_ref = (chosen or {}).get("action") or own
    if not action_ref:
        known = ", ".join(sorted(gate.classifiers)) or "none"
        text = f"no action takes {quoted(message.classifier)}; this gate knows: {known}"
        return "", [Problem("/taskClassifier", text)]
    versions = (chosen or {}).get("versions")
    if versions and message.api_version not in versions:
        expected = ", ".join(map(str, versions))
        text = f"expected one of the versions {expected}, found {message.api_version}"
        return action_ref, [Problem("/taskApiVersion", text)]
    return action_ref, []


def _in_message(pointer: str) -> str:
    """The place in a task message of a problem with an execution: its data are the parameters."""
    if pointer.startswith("/parameters"):
        return f"/taskData{pointer.removeprefix('/parameters')}"
    return pointer


def new_execution(
    message: TaskMessage,
    *,
    gate: Gate,
    action_ref: str,
    parameters: Mapping[str, Any],
    tries: int = 0,
) -> NewExecution:
    """The execution that a message asks for. A lost attempt is repeated by Muster, or through the
    retry queue: then it has one attempt here."""
    queue = gate.queue
    attempts = 1 if gate.retry_by == gate.RetryBy.QUEUE else retry_limit(gate) + 1
    own = message.correlation_id
    return NewExecution(
        action_ref=action_ref,
        parameters=parameters,
        priority=message.priority,
        retry={"max_attempts": attempts},
        correlation_id=own[:CORRELATION_MAX] if own else None,
        queue=queue.name,
        retry_count=tries,
    )
