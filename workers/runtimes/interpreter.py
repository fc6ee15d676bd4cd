"""Python actions in a process of their own, with the interpreter of the action or of its pack.

For packs that need other packages, or another Python, than Muster does, and for code that must be
limited. A pack with a `requirements.txt` gets its own environment, made when it is first used (see
`orchestrator.core.packs.environments`). The function is called as it is in the worker's process;
its return value is the result, together with its output and its cost.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from orchestrator.core import isolation
from orchestrator.core.packs import environments
from orchestrator.core.reasons import Reason
from workers import hiding, processes
from workers.isolated import results
from workers.runtimes import command, conclusions
from workers.runtimes.command import CannotRun, Command
from workers.runtimes.conclusions import Ended
from workers.runtimes.protocol import Call, Outcome, completed, failed, not_loaded, raised

MESSAGE_LIMIT, TRACEBACK_LIMIT = 2_000, 20_000
"""Characters that are kept of an exception. The end of its traceback names the error."""

RUNNER = Path(__file__).with_name("python_runner.py")


def run(call: Call) -> Outcome:
    return command.run(call, lambda work_dir: _prepare(call), concluding=_conclude)


def _prepare(call: Call) -> Command:
    try:
        python = environments.python_of(
            Path(call.pack_path),
            interpreter=call.options.get("interpreter", ""),
            directory=environments.directory(isolation.user()),
            timeout_seconds=call.timeout_seconds,
            environment=processes.markers(call.execution_id, call.attempt, call.action_ref),
            user=isolation.user(),
        )
    except environments.CannotMake as error:
        raise CannotRun(results.text(str(error)), Reason.ENVIRONMENT_FAILED) from None
    # not resolved if it is a link: modules are found by the name of the folder
    parent = os.path.dirname(os.path.abspath(call.pack_path))
    return Command(
        [python, str(RUNNER), str(call.entry_point), parent],
        stdin=json.dumps(call.parameters).encode(),
        environment={"PYTHONUNBUFFERED": "1", **call.options.get("env", {})},
        result="file",
        limits=call.limits,
        detached=call.options.get("detached", "fail"),
    )


def _conclude(call: Call, asked: Command, ended: Ended) -> Outcome:
    """Conclude from the runner's answer, unless something other than the function ended it."""
    answer = _answer(ended.result)
    ended_by_itself = ended.return_code is not None and not (ended.was_stopped or ended.exceeded)
    if ended_by_itself and "unavailable" in answer:
        return not_loaded(call, str(answer["unavailable"]))
    if ended_by_itself and "exception" in answer:
        message = hiding.hidden(str(answer.get("message")))[:MESSAGE_LIMIT]
        traceback = hiding.hidden(str(answer.get("traceback")))[-TRACEBACK_LIMIT:]
        if answer["exception"] == "MemoryError":
            details = {"exception": "MemoryError", "traceback": traceback}
            reason = Reason.MEMORY_LIMIT_EXCEEDED
            return failed(message, reason=reason, **ended.details | details)
        return raised(answer | {"message": message, "traceback": traceback}, **ended.details)
    outcome = conclusions.conclude(call, asked, ended)
    if outcome.event != "complete":
        return outcome
    if "value" not in answer:
        return failed("The action ended its process and returned nothing.", **ended.details)
    return completed({"result": answer["value"]} | ended.details)


def _answer(written: bytes) -> dict[str, Any]:
    """Read what the runner wrote; empty if it ended before that, or the action overwrote it."""
    try:
        answer = results.from_json(written)
    except results.NotStorable:
        return {}
    return answer if isinstance(answer, dict) else {}
