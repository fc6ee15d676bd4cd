"""Run an action: `run(call)`. There is a module for each runtime, behind one small protocol.

Runs in a child or a thread of the worker's pool, touches neither database nor broker, and never
raises because of an action: every end is an Outcome.
"""

from workers.runtimes.protocol import (
    Call,
    Outcome,
    Runtime,
    completed,
    failed,
    interrupted,
    not_begun,
    timed_out,
    unavailable,
    unavailable_result,
)
from workers.runtimes.registry import in_process, offered, run, survey

__all__ = [
    "Call",
    "Outcome",
    "Runtime",
    "completed",
    "failed",
    "in_process",
    "interrupted",
    "not_begun",
    "offered",
    "run",
    "survey",
    "timed_out",
    "unavailable",
    "unavailable_result",
]
