"""Running an action: `run(call)`. A module for each kind of runtime, behind one small protocol.

Runs in a child or a thread of the worker's pool, touches neither database nor broker, and never
raises for what an action does: however it ends, it ends as an Outcome.
"""

from workers.runtimes.protocol import (
    Call,
    Outcome,
    Runtime,
    completed,
    failed,
    timed_out,
    unavailable,
)
from workers.runtimes.registry import in_process, offered, run, survey

__all__ = [
    "Call",
    "Outcome",
    "Runtime",
    "completed",
    "failed",
    "in_process",
    "offered",
    "run",
    "survey",
    "timed_out",
    "unavailable",
]
