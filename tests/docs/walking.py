"""A page, walked: its blocks run as a newcomer would run them, one after another, in one shell."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import select
import shlex
import signal
import subprocess
import time
from dataclasses import dataclass, replace
from pathlib import Path

from tests.docs.pages import FAILS, Block, Page
from tests.docs.system import System

ADDRESS = "127.0.0.1:8000"
"""Where the pages find the API; here it is on another port."""
BEGIN = "\x1eblock "
PAGE_SECONDS = 240.0
FAILING = """\
set +e
( set -e
{}
)
[ $? != 0 ] || {{ echo "expected to fail"; exit 1; }}
set -e"""


@dataclass
class Walk:
    """What happened on a page: the output of each block that ran, by its line."""

    printed: dict[int, str]
    status: int

    def last(self) -> tuple[int, str]:
        return list(self.printed.items())[-1]


def walk(page: Page, system: System) -> Walk:
    directory = system.checkout(Path(page.name).stem)
    script = directory / ".script"
    here = f"127.0.0.1:{system.port}"
    blocks = [replace(block, text=block.text.replace(ADDRESS, here)) for block in page.blocks]
    script.write_text(_script(blocks, directory / ".blocks"))
    output, status = _in_terminal(["bash", str(script)], directory, system.shell_environment())
    parts = output.replace(here, ADDRESS).split(BEGIN)[1:]
    numbered = (part.split("\n", 1) for part in parts)
    return Walk({int(line): text for line, text in numbered}, status)


def _script(blocks: list[Block], kept: Path) -> str:
    """All blocks; the files that some of them are, where a reader would make them."""
    kept.mkdir()
    lines = ["set -euo pipefail", "shopt -s expand_aliases"]
    for block in blocks:
        if block.path:
            copy = kept / str(block.line)
            copy.write_text(block.text)
            lines.append(f"mkdir -p {shlex.quote(os.path.dirname(block.path) or '.')}")
            lines.append(f"cp {copy} {shlex.quote(block.path)}")
        elif block.is_run:
            lines.append(f"echo $'{BEGIN}'{block.line}")
            lines.append(FAILING.format(block.text) if block.words == FAILS else block.text)
    return "\n".join(lines)


def _in_terminal(
    command: list[str], directory: Path, environment: dict[str, str]
) -> tuple[str, int]:
    """Run it with a terminal of 80 columns as output; what was shown, and the exit status. What it
    leaves in the background is ended."""
    ours, its = pty.openpty()
    process = subprocess.Popen(
        command,
        cwd=directory,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=its,
        stderr=its,
        start_new_session=True,
    )
    os.close(its)
    ends_at = time.monotonic() + PAGE_SECONDS
    output = b""
    while time.monotonic() < ends_at:
        if select.select([ours], [], [], 0.05)[0]:
            try:
                output += os.read(ours, 65_536)
            except OSError:  # nobody has the other end any more
                break
        elif process.poll() is not None:
            break
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    os.close(ours)
    text = re.sub(r"\x1b\[[0-9;]*m|\r", "", output.decode(errors="replace"))
    return text, process.wait()


# --- output ---------------------------------------------------------------------------------------

CHANGES = (
    (r"[0-9a-f]{8}-[0-9a-f]{4}(-[0-9a-f]{4}){0,2}(-[0-9a-f]{12})?", "ID"),
    (r"(\d{4}-)?\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)?", "TIME"),
    (r"mst_[A-Za-z0-9_-]{43}[0-9A-Za-z]{6}", "TOKEN"),
    (r"\d+(\.\d+)? (ms|s|min|h|d)\b", "SPAN"),
    (r"─+", "─"),
    (r"[ \t]+", " "),
)
"""What differs from run to run, and what stands for it on both sides of a comparison."""

ANYTHING = "..."
"""In a line any text, as a line any lines."""


def agrees(expected: str, printed: str) -> bool:
    """Whether a command printed what its page shows."""
    pattern = "".join(map(_line_pattern, normalised(expected).splitlines()))
    return re.fullmatch(pattern, normalised(printed) + "\n") is not None


def normalised(text: str) -> str:
    for pattern, instead in CHANGES:
        text = re.sub(pattern, instead, text)
    return "\n".join(line.strip() for line in text.strip().splitlines())


def _line_pattern(line: str) -> str:
    if line == ANYTHING:
        return r"(?:.*\n)*?"
    return ".*".join(map(re.escape, line.split(ANYTHING))) + r"\n"
