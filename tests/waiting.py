"""Waiting for what another thread or process does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")


def wait_until(
    look: Callable[[], Found],
    complaint: str = "it did not happen in time",
    *,
    seconds: float = 60.0,
) -> Found:
    """What there is to see once there is something."""
    ends_at = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < ends_at, complaint
        time.sleep(0.01)
    return found
