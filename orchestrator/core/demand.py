"""Whether anybody wants to be told, so that nobody pays for news that nobody reads."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from orchestrator.core import frame
from orchestrator.core.frame import MusterApp, Named

ASK_EVERY_SECONDS = 1.0


class Demand:
    """Whether an app wanted the news when this process last asked: a second ago at most."""

    def __init__(self, wants: Callable[[MusterApp], Sequence[Named]]) -> None:
        self._wants = wants
        self.exists, self._asked_at = False, float("-inf")

    def ask(self) -> bool:
        if time.monotonic() - self._asked_at > ASK_EVERY_SECONDS:
            self.exists = any(want() for want in frame.collect(self._wants))
            self._asked_at = time.monotonic()
        return self.exists
