"""The actions of `manage.py drill`: harmless, and witnesses of when they ran."""

from __future__ import annotations

import json
import os
import time

TICK_SECONDS = 0.05


def wait(*, seconds: float, journal: str) -> dict[str, float]:
    """Wait, and note down every 50 ms that this attempt is alive: a line each, in one write."""
    until = time.monotonic() + seconds
    with open(journal, "ab", buffering=0) as file:
        while True:
            line = {
                "execution": os.environ.get("MSTR_EXECUTION_ID", ""),
                "attempt": int(os.environ.get("MSTR_ATTEMPT", "0")),
                "at": time.time(),
            }
            file.write(json.dumps(line).encode() + b"\n")
            left_seconds = until - time.monotonic()
            if left_seconds <= 0:
                return {"seconds": seconds}
            time.sleep(min(TICK_SECONDS, left_seconds))
