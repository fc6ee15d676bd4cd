"""Calls to make."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

from workers.runtimes import Call

SAMPLE = "tests.workers.sample"

BOMB = """
import mmap, os, signal, struct, sys, time
count = mmap.mmap(-1, 8)
until = time.monotonic() + 3
while time.monotonic() < until and struct.unpack("q", count[:8])[0] < 1500:
    if os.fork() == 0:
        signal.alarm(4)
        if sys.argv[1] == "setsid":
            os.setsid()
        count[:8] = struct.pack("q", struct.unpack("q", count[:8])[0] + 1)
time.sleep(4)
"""
"""A program that forks as fast as it can, in sessions of their own if told to. Whatever becomes of
it, it ends by itself: at 1,500 processes, and each of them after four seconds."""


def call(runtime: str, entry_point: str | list[str], **values: Any) -> Call:
    known: dict[str, Any] = {
        "execution_id": str(uuid.uuid4()),
        "attempt": 1,
        "action_ref": "test.action",
        "runtime": runtime,
        "entry_point": entry_point,
        "parameters": {},
        "timeout_seconds": 30.0,
        "pack_path": str(Path(__file__).parents[1]),
        "output_limit_bytes": 1_000,
        "cancel_grace_seconds": 0.2,
    }
    return Call(**known | values)


def python(function: str, **values: Any) -> Call:
    return call("python", f"{SAMPLE}:{function}", **values)


def sh(script: str, **values: Any) -> Call:
    return call("shell", ["sh", "-c", script], **values)
