"""Node actions: a script of the pack, run by the worker's `node`.

Parameters come as JSON on stdin, and as arguments if the entry point names them. The result is JSON
on the last line of stdout, unless the action's options say otherwise. See `command` for the rest.
"""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
from pathlib import Path

from workers.runtimes import command, kept, shell
from workers.runtimes.protocol import Call, Outcome

OLDEST = 18
"""The oldest major version that is supported: the first with `fetch` and `node:test`."""
PROBE_SECONDS = 10.0


def why_not() -> str:
    if reason := kept.why_not():
        return reason
    version = _version()
    if version is None:
        return "there is no program `node` on PATH"
    match = re.fullmatch(r"v(\d+)\..*", version)
    if match is None:
        return f"`node --version` says {version[:80]!r}, which is no version"
    if int(match[1]) < OLDEST:
        return f"its node is {version}, and {OLDEST} is the oldest that is supported"
    return ""


def run(call: Call) -> Outcome:
    def prepare(work_dir: str) -> command.Command:
        script, *arguments = list(call.entry_point)
        located = str(Path(call.pack_path).resolve() / script)
        return shell.prepare(call, ["node", located, *arguments], result="last_line")

    return command.run(call, prepare)


@functools.cache
def _version() -> str | None:
    """The version that node reports; None without node, empty if it does not answer."""
    if shutil.which("node") is None:
        return None
    try:
        process = subprocess.run(
            ["node", "--version"], capture_output=True, text=True, timeout=PROBE_SECONDS
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return process.stdout.strip()
