"""Python actions in a process of their own: an interpreter of the action's, or of its pack's.

For packs that need other packages, or another Python, than Muster does, and for code that must be
limited. A pack with a `requirements.txt` gets an environment of its own, made when it is first
used (see `orchestrator.core.packs.environments`). The function is called as it is in the worker's
process; what it returns is the result, with its output and what it cost beside it.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from django.conf import settings

from orchestrator.core.packs import environments
from orchestrator.core.reasons import Reason
from workers import processes
from workers.runtimes import command, results
from workers.runtimes.command import CannotRun, Command, Ended
from workers.runtimes.protocol import Call, Outcome, completed, failed, not_loaded

RUNNER = Path(__file__).with_name("python_runner.py")


def run(call: Call) -> Outcome:
    return command.run(call, lambda work_dir: _prepare(call), concluding=_conclude)


def _prepare(call: Call) -> Command:
    try:
        python = environments.python_of(
            Path(call.pack_path),
            interpreter=call.options.get("interpreter", ""),
            data_dir=settings.DATA_DIR,
            timeout_seconds=call.timeout_seconds,
            environment=processes.markers(call.execution_id, call.attempt, call.action_ref),
        )
    except environments.CannotMake as error:
        raise CannotRun(results.text(str(error)), Reason.ENVIRONMENT_FAILED) from None
    # as it is called, and not where a link leads: modules are found by the name of the folder
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
    """The runner's answer, unless something else than the function ended it."""
    answer = _answer(ended.result)
    ended_by_itself = ended.return_code is not None and not (ended.was_stopped or ended.exceeded)
    if ended_by_itself and "unavailable" in answer:
        return not_loaded(call, str(answer["unavailable"]))
    if ended_by_itself and "exception" in answer:
        reason = Reason.ACTION_FAILED
        if answer["exception"] == "MemoryError":
            reason = Reason.MEMORY_LIMIT_EXCEEDED
        told = {name: answer.get(name) for name in ("exception", "traceback")}
        return failed(str(answer.get("message")), reason=reason, **ended.details | told)
    outcome = command.conclude(call, asked, ended)
    if outcome.event != "complete":
        return outcome
    if "value" not in answer:
        return failed("The action ended its process and returned nothing.", **ended.details)
    return completed({"result": answer["value"]} | ended.details)


def _answer(written: bytes) -> dict[str, Any]:
    """What the runner wrote; nothing if it was ended before, or the action wrote over it."""
    try:
        answer = results.from_json(written)
    except results.NotStorable:
        return {}
    return answer if isinstance(answer, dict) else {}
