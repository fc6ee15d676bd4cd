"""Node actions: a script of the pack, run by the worker's `node`.

Parameters come as JSON on stdin, and as arguments where the entry point names them. The result is
JSON on the last line of stdout, unless the action's options say otherwise. What else holds for the
command is in `command`.
"""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
from pathlib import Path

from workers.runtimes import command, shell
from workers.runtimes.protocol import Call, Outcome

OLDEST = 18
"""The oldest major version that is offered: the first with `fetch` and `node:test`."""
PROBE_SECONDS = 10.0


def why_not() -> str:
    if reason := command.why_not():
        return reason
    found = _version()
    if found is None:
        return "there is no program `node` on PATH"
    match = re.fullmatch(r"v(\d+)\..*", found)
    if match is None:
        return f"`node --version` says {found[:80]!r}, which is no version"
    if int(match[1]) < OLDEST:
        return f"its node is {found}, and {OLDEST} is the oldest that is supported"
    return ""


def run(call: Call) -> Outcome:
    def prepare(work_dir: str) -> command.Command:
        script, *arguments = list(call.entry_point)
        located = str(Path(call.pack_path).resolve() / script)
        return shell.prepare(call, ["node", located, *arguments], result="last_line")

    return command.run(call, prepare)


@functools.cache
def _version() -> str | None:
    """What node says its version is; None without node, empty if it does not answer."""
    if shutil.which("node") is None:
        return None
    try:
        said = subprocess.run(
            ["node", "--version"], capture_output=True, text=True, timeout=PROBE_SECONDS
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return said.stdout.strip()
