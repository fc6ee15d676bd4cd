"""The executor's look at what no message reported, each second."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db.models import QuerySet

from orchestrator.automation import enforcing, matching, timers
from orchestrator.automation.models import Enforcement, Event
from orchestrator.core import database

LONGEST_SECONDS = 0.5
GRACE = timedelta(seconds=1)
"""A younger row is normally handled by the receiver of its message."""


def for_events(*, now: datetime, actor: str) -> int:
    """Fire timers, in case no sensor service does. Then evaluate events whose message was lost, the
    oldest first; returns how many."""
    overlooked = Event.objects.overlooked(now, GRACE).values_list("pk", flat=True)
    match = partial(matching.match, now=now, actor=actor)
    parts: dict[str, Callable[[], int]] = {
        "fired": partial(_fire_due, now=now),
        "evaluated": partial(_all_of, overlooked, match),
    }
    return database.carry_out_each(parts)["evaluated"]


def for_enforcements(*, now: datetime, actor: str) -> int:
    """Settle enforcements whose message was lost, the oldest first; returns how many."""
    overlooked = Enforcement.objects.overlooked(now, GRACE).values_list("pk", flat=True)
    return _all_of(overlooked, partial(enforcing.enforce, now=now, actor=actor))


def _fire_due(*, now: datetime) -> int:
    """Fire timers batch by batch, for a while: without a sensor service all of them come this
    way."""
    until = time.monotonic() + LONGEST_SECONDS
    total = 0
    while True:
        fired = timers.fire_due(now=now)
        total += fired
        if not fired or time.monotonic() > until:
            return total


def _all_of(overlooked: QuerySet[Any, UUID], settle: Callable[[list[UUID]], int]) -> int:
    """Settle them batch by batch, for a while: with the broker down all of them come this way."""
    until = time.monotonic() + LONGEST_SECONDS
    total = 0
    while True:
        ids = list(overlooked[: settings.MUSTER.batch_size])
        settled = settle(ids)
        total += settled
        if not settled or len(ids) < settings.MUSTER.batch_size or time.monotonic() > until:
            return total
