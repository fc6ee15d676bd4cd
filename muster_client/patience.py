"""Patience: how long a request is repeated, and the pauses between."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True)
class Patience:
    """A request that got no answer, or a `503`, is repeated after 0.1, 0.2, 0.4 ... seconds, each
    varied by chance, until so many seconds have passed. A longer `Retry-After` counts instead."""

    seconds: float = 60.0
    """0 means that nothing is repeated."""
    first_pause_seconds: float = 0.1
    longest_pause_seconds: float = 5.0

    def pause(self, failures: int, *, retry_after_seconds: float | None = None) -> float:
        """The seconds to wait after so many failures in a row, at least 1."""
        pause = self.first_pause_seconds * (1 << min(failures - 1, 30))
        pause = min(pause, self.longest_pause_seconds)
        pause *= random.uniform(0.5, 1.0)  # noqa: S311 - no secret
        return max(pause, retry_after_seconds or 0.0)
