"""The limit of the deliveries that a hook takes in this process. Only those that are signed are
counted: else a stranger could use up what the sender has."""

from __future__ import annotations

import threading
from uuid import UUID

from django.conf import settings

from orchestrator.automation.hooks.deliveries import TooMany

BURST_SECONDS = 10.0
"""A hook that was quiet for so long takes as many at once as it may take in this time."""

MOST_REMEMBERED = 10_000


class Buckets:
    """For each hook the time at which it would be empty, if it took one delivery after another
    (GCRA). From any thread."""

    def __init__(self) -> None:
        self._empty_at: dict[UUID, float] = {}
        self._lock = threading.Lock()

    def require_room(self, hook: UUID, *, at: float) -> None:
        """Raise TooMany if the hook has taken all that it may for now. `at`: counted seconds."""
        each = _seconds_each()
        if self._empty_at.get(hook, 0.0) + each - at > max(BURST_SECONDS, each):
            raise TooMany(
                f"A hook takes {settings.MUSTER.hook_deliveries_per_minute:g} deliveries a minute "
                "(MUSTER_HOOK_DELIVERIES_PER_MINUTE)"
            )

    def take(self, hook: UUID, *, at: float) -> None:
        """Count one."""
        with self._lock:
            if len(self._empty_at) >= MOST_REMEMBERED:
                self._empty_at.clear()
            self._empty_at[hook] = max(self._empty_at.get(hook, 0.0), at) + _seconds_each()


def _seconds_each() -> float:
    return 60.0 / settings.MUSTER.hook_deliveries_per_minute


buckets = Buckets()
