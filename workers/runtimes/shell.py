"""Shell actions: a command as a list of arguments, never a line for a shell to interpret.

It gets its parameters as JSON on stdin, and those that its entry point names as arguments. A
relative command with a slash is looked for in the pack's folder. Exit code 0 completes the
execution, 75 defers it if the action is idempotent or its options say so, anything else fails it.
At the time limit its processes get SIGTERM, after the grace SIGKILL. When it ends by itself, its
remaining processes are killed. See `command` for the rest.
"""

from __future__ import annotations

import json
from pathlib import Path

from orchestrator.core import placeholders
from workers.runtimes import command, kept
from workers.runtimes.command import Command
from workers.runtimes.protocol import Call, Outcome


def why_not() -> str:
    return kept.why_not()


def run(call: Call) -> Outcome:
    return command.run(call, lambda work_dir: prepare(call, _located(call)))


def prepare(call: Call, entry_point: list[str], *, result: str = "none") -> Command:
    """Build the command of an entry point, with its parameters. Raises CannotExpand."""
    return Command(
        placeholders.expand(entry_point, call.parameters),
        stdin=json.dumps(call.parameters).encode(),
        environment=call.options.get("env", {}),
        result=call.options.get("result", result),
        limits=call.limits,
        detached=call.options.get("detached", "fail"),
    )


def _located(call: Call) -> list[str]:
    first, *arguments = list(call.entry_point)
    if "/" in first and not placeholders.names(first):
        first = str(Path(call.pack_path).resolve() / first)
    return [first, *arguments]
