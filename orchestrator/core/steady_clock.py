"""A clock that nobody can set. It imports nothing of ours, as sentinels start light."""

from __future__ import annotations

import time


def seconds_counted() -> float:
    """Read a clock that cannot be set, and that continues while the machine is suspended."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
