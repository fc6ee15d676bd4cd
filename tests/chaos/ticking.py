"""Timers while the services that fire them are killed: no time is missing, none comes twice."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from tests.scenarios.installation import Installation, Service

SHORTEST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.2, 1.0
CAUGHT_UP_SECONDS = 120.0
AT_ONCE = 20
"""Rules that are installed or switched by one call."""

NEVER = {"trigger.missed": {"type": "lt", "pattern": 0}}


@dataclass(frozen=True)
class Ticked:
    """What came of it."""

    ticks: int
    kills: int
    latest_seconds: float
    """From the time at which a tick was due to its event, the longest."""


def storm(
    muster: Installation,
    *,
    timers: int,
    seconds: float,
    seed: int,
    sensors: int = 2,
    executors: int = 3,
    tell: Callable[[str], None] = lambda text: None,
) -> Ticked:
    """Have timers of one second fire while services are killed; AssertionError if one has not
    exactly one event for each of its times."""
    rng = random.Random(seed)
    starts: dict[str, Callable[[], Service]] = {
        **{f"e{number}": _executor(muster, f"e{number}") for number in range(executors)},
        **{f"s{number}": _sensor(muster, f"s{number}") for number in range(sensors)},
    }
    services = {name: start() for name, start in starts.items()}
    muster.ready()
    refs = _install(muster, timers)
    tell(f"{timers} timers tick")
    kills, until = 0, time.monotonic() + seconds
    while time.monotonic() < until:
        name = rng.choice(sorted(services))
        services[name].kill()
        services[name] = starts[name]()
        kills += 1
        time.sleep(rng.uniform(SHORTEST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS))
    muster.ready()
    tell(f"{kills} kills; waiting until nothing is overdue")
    muster.wait_for(
        lambda: muster.client.call("overdue_timers") == 0,
        "timers stay overdue",
        within_seconds=CAUGHT_UP_SECONDS,
    )
    for first in range(0, len(refs), AT_ONCE):
        muster.client.call("switch_rules", refs=refs[first : first + AT_ONCE], enabled=False)
    number, latest = check(muster, every_seconds=1, timers=timers)
    return Ticked(number, kills, latest)


def check(
    muster: Installation, *, every_seconds: int, timers: int | None = None
) -> tuple[int, float]:
    """Each timer has one event for each of its times, and none is missing; returns how many there
    are, and by how many seconds the latest was late."""
    by_trigger: dict[int, list[Any]] = {}
    for trigger_id, occurred_at, received_at, missed in muster.client.call("ticks_of_timers"):
        assert missed == 0, (trigger_id, occurred_at, missed)
        by_trigger.setdefault(trigger_id, []).append((occurred_at, received_at))
    step = timedelta(seconds=every_seconds)
    for rows in by_trigger.values():
        times = sorted(due for due, _ in rows)
        assert times == [times[0] + step * number for number in range(len(times))]
    assert timers is None or len(by_trigger) == timers
    late = [(came - due).total_seconds() for rows in by_trigger.values() for due, came in rows]
    return len(late), max(late)


def _install(muster: Installation, timers: int) -> list[str]:
    rules = [
        {
            "ref": f"scenario.timer{number}",
            "trigger_type": "core.interval",
            "trigger_parameters": {
                "every_seconds": 1,
                "catch_up": "all",
                "start_at": f"2026-01-01T00:00:00.{number:03d}+00:00",
            },
            "criteria": NEVER,
            "action_ref": "core.noop",
        }
        for number in range(timers)
    ]
    for first in range(0, timers, AT_ONCE):
        muster.client.call("install_rules", news=rules[first : first + AT_ONCE])
    return [str(rule["ref"]) for rule in rules]


def _executor(muster: Installation, name: str) -> Callable[[], Service]:
    return lambda: muster.start_executor(name)


def _sensor(muster: Installation, name: str) -> Callable[[], Service]:
    return lambda: muster.start_sensor(name)
