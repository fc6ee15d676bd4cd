"""Imported first by the processes whose clock is skewed.

libfaketime (0.9.10) takes the absolute time of `clock_nanosleep`, by which Python sleeps, for one
of the skewed clock, even where that of CLOCK_MONOTONIC is left alone: it would fail, or take an
hour. A sleep by `select` has no such time.
"""

import select
import time


def _sleep(seconds: float) -> None:
    if seconds < 0:
        raise ValueError("sleep length must be non-negative")
    select.select([], [], [], seconds)


time.sleep = _sleep  # type: ignore[assignment]
