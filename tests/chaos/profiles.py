"""The settings under which a storm runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.chaos.facts import Terms

DEFERRALS: dict[str, Any] = {"defer_seconds": 1, "defer_pause_seconds": 1}
"""Short in each storm: what defers is few actions, which all workers must not pause for long."""

SETTINGS: dict[str, Any] = {
    # long enough for a machine that does much else: whoever lives is not to be missed
    "heartbeat_interval_seconds": 2,
    "staleness_multiplier": 5,
    "worker_queue_ttl_ms": 12_000,
    "start_grace_seconds": 2,
    "run_grace_seconds": 3,
    "publish_timeout_seconds": 2,
    "deadline_seconds": 60,
    "no_worker_grace_seconds": 20,
    "staleness_interval_seconds": 2,
    **DEFERRALS,
}


@dataclass(frozen=True)
class Profile:
    """The settings under which a storm runs, and how long it must wait because of them."""

    name: str
    settings: Mapping[str, Any]
    is_quick: bool
    """Whether what `settings` leaves out is shortened, too."""
    terms: Terms
    quiet_seconds: float
    """The deadline of what was accepted last, the promised 20 s, and some."""
    deadline_seconds: float | None = None
    """What the client asks for; None for what the settings say."""


QUICKLY = Profile(
    "shortened settings",
    SETTINGS,
    True,
    Terms(heartbeat_seconds=2.0, staleness_seconds=10.0, queue_ttl_seconds=12.0),
    100.0,
)
BY_DEFAULT = Profile(
    "default settings",
    DEFERRALS,
    False,
    Terms(
        heartbeat_seconds=10.0,
        staleness_seconds=30.0,
        queue_ttl_seconds=300.0,
        start_grace_seconds=10.0,
        run_grace_seconds=10.0,
        shutdown_seconds=30.0,
    ),
    # a message that nobody takes lives for its TTL, and what was given back waits as long again
    900.0,
    600.0,
)
