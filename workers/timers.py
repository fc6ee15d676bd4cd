"""The timers of the consumer's loop, without those that were cancelled.

The pool sets a timer for the time limit of each action and cancels it at its end; kombu keeps a
cancelled timer until it would have fired. At a thousand actions a second, with a limit of ten
minutes, that was 300 MB.
"""

from __future__ import annotations

from typing import Any

EVERY_SECONDS = 1.0
WORTH_IT = 2_000
"""So many more than were left the last time; they are sorted again."""


class Timers:
    """The timers of one loop. `tidy` is called in that loop."""

    def __init__(self, timer: Any) -> None:
        self.timer = timer
        self._left = 0

    def tidy(self) -> None:
        """Drop what was cancelled, if it may be much."""
        if len(self.timer) < self._left + WORTH_IT:
            return
        events = self.timer.queue
        self.timer.clear()
        for at, priority, entry in events:
            if not entry.canceled:
                self.timer.enter_at(entry, at, priority)
        self._left = len(self.timer)
