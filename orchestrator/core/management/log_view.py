"""Output of executions in the terminal: what is there, and what comes."""

from __future__ import annotations

import time
from collections.abc import Iterator

from orchestrator.core.authority import Principal
from orchestrator.core.live_output import Follower
from orchestrator.core.management.watching import LOOK_EVERY_SECONDS
from orchestrator.core.shown import output as shown
from orchestrator.core.shown.output import OutputPart


def parts(follower: Follower, *, follow: bool, seen_by: Principal) -> Iterator[OutputPart]:
    """Yield what was printed; with `follow`, until the end of the execution."""
    while True:
        for part in follower.parts():
            assert follower.execution is not None
            yield shown.part(part, of=follower.execution, seen_by=seen_by)
        if follower.is_over or not follow:
            return
        time.sleep(LOOK_EVERY_SECONDS)


def printable(text: str) -> str:
    """A text that a terminal only shows: its other control characters are escaped."""
    return "".join(c if c.isprintable() or c in "\n\t" else repr(c)[1:-1] for c in text)


def notes(before: OutputPart | None, part: OutputPart) -> Iterator[str]:
    """Lines to be said before a part."""
    if before is not None and part.attempt != before.attempt:
        yield f"--- attempt {part.attempt} ---"
    if part.dropped_bytes:
        yield f"--- {part.dropped_bytes:,} bytes of {part.stream} were not kept ---"
