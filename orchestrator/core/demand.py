"""The demand for news, so that nobody pays for news that nobody reads."""

from __future__ import annotations

import time
from collections.abc import Callable

ASK_EVERY_SECONDS = 1.0


class Demand:
    """The demand for the news, as it was when this process last asked: a second ago at most."""

    def __init__(self, wants: Callable[[], bool]) -> None:
        self._wants = wants
        self.exists, self._asked_at = False, float("-inf")

    def ask(self) -> bool:
        if time.monotonic() - self._asked_at > ASK_EVERY_SECONDS:
            self.exists = self._wants()
            self._asked_at = time.monotonic()
        return self.exists
