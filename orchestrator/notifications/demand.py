"""The listeners, if there are any: a row for each process that follows changes."""

from __future__ import annotations

from datetime import datetime, timedelta

from orchestrator.core import clock
from orchestrator.core.models.prepared import STAND_IN_TIME, Prepared
from orchestrator.notifications.models import Listener

ALIVE = timedelta(seconds=10)
"""A process that died is believed to listen for so long."""

LONGEST_LAG_MS = 2**31 - 1
"""The most that its column holds: 24 days."""

_wanting = Prepared(lambda now: Listener.objects.wanting(now).values_list("pk")[:1], STAND_IN_TIME)


def exists() -> bool:
    """Return True while somebody listens."""
    return bool(_wanting(clock.now()))


def renew(*, name: str, clients: int, lag_ms: int, problem: str, now: datetime) -> None:
    """Say that this process follows changes, and how many clients wait for them."""
    until = now + ALIVE
    Listener.objects.update_or_create(
        name=name,
        defaults={
            "alive_until": until,
            "wanted_until": until if clients else None,
            "clients": clients,
            "lag_ms": min(lag_ms, LONGEST_LAG_MS),
            "problem": problem[:200],
        },
    )


def leave(*, name: str, now: datetime) -> None:
    """Say that this process listens no more; forget those that never said so."""
    Listener.objects.filter(name=name).delete()
    Listener.objects.filter(alive_until__lt=now - ALIVE).delete()
