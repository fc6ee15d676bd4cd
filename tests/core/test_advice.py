"""What is advised of waits and time limits, and on what it rests."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from uuid_utils import compat as uuid_utils

from orchestrator.core import advice, clock
from orchestrator.core.advice import Advice, Limit
from orchestrator.core.models import Action, Execution
from orchestrator.core.states import ExecutionStatus
from tests import commands
from tests.factories import NOW, make_action, make_execution, make_worker

pytestmark = pytest.mark.usefixtures("database")

S = ExecutionStatus
HOUR = timedelta(hours=1)


def at(moment: datetime) -> Any:
    """An id as it is made at that moment."""
    return uuid_utils.UUID(int=int(moment.timestamp() * 1000) << 80 | uuid_utils.uuid4().int >> 64)


def ran(action: Action, seconds: float, *, ended_at: datetime = NOW - HOUR) -> Execution:
    started_at = ended_at - timedelta(seconds=seconds)
    return make_execution(
        S.COMPLETED,
        action=action,
        id=at(started_at),
        created_at=started_at,
        scheduled_at=started_at,
        started_at=started_at,
        ended_at=ended_at,
        run_deadline_at=ended_at,
    )


def expired(action: Action, *, after_seconds: float, scheduled_at: datetime) -> Execution:
    return make_execution(
        S.FAILED,
        action=action,
        id=at(scheduled_at),
        created_at=scheduled_at,
        scheduled_at=scheduled_at,
        started_at=None,
        run_deadline_at=None,
        ended_at=scheduled_at + timedelta(seconds=after_seconds),
        reason="queue_ttl_expired",
    )


def the_advice(days: int = 7) -> Advice:
    (found,) = advice.advise(days=days, now=NOW)
    return found


def test_limits_are_two_to_five_times_the_typical_run() -> None:
    action = make_action(queue_ttl_ms=30_000)
    for seconds in (50, 100, 100, 110, 4_000):
        ran(action, seconds)
    found = the_advice()
    assert (found.runs, found.typical_seconds, found.slowest_seconds) == (5, 100, 4_000)
    assert found.wait == Limit(now=30, least=200, most=500)
    assert (found.wait.verdict, found.wait.advised) == ("short", 200)
    assert found.run == Limit(now=600, least=4_000, most=4_000), "it would end what ends well"
    assert (found.run.verdict, found.run.advised) == ("short", 4_000)


def test_limits_are_never_under_two_minutes() -> None:
    ran(make_action(queue_ttl_ms=120_000, timeout_seconds=3_600), 0.01)
    found = the_advice()
    assert (found.wait.verdict, found.wait.least, found.wait.most) == ("fits", 120, 120)
    assert (found.run.verdict, found.run.advised) == ("long", 120)


def test_only_what_completed_in_those_days_counts() -> None:
    action = make_action()
    ran(action, 1_000, ended_at=NOW - timedelta(days=8))
    ran(make_action("core.disabled", enabled=False), 10)
    make_execution(S.ABANDONED, action=action)
    make_execution(S.COMPLETED, action=action, started_at=None)  # an answered question
    assert advice.advise(days=7, now=NOW) == []
    assert the_advice(days=9).typical_seconds == 1_000


def test_what_expired_and_would_have_run_is_what_its_worker_had_time_for_soon_after() -> None:
    make_worker()
    action, other = make_action(queue_ttl_ms=30_000), make_action("core.other", enabled=False)
    began = NOW - 2 * HOUR
    ran(action, 100, ended_at=began - HOUR)  # so that the rule gives 200 to 500 s
    expired(action, after_seconds=30, scheduled_at=began)
    expired(action, after_seconds=30, scheduled_at=began + HOUR)
    # the worker was free 499 s after the first of them was dispatched, and never after the second
    ran(other, 1, ended_at=began + timedelta(seconds=500))
    found = the_advice()
    assert (found.expired, found.would_have_run) == (2, 1)


def test_command_says_what_to_change_and_fits_the_screen() -> None:
    now = clock.now()
    action = make_action("core.import_of_a_long_name", queue_ttl_ms=400_000)
    for _ in range(3):
        ran(action, 300, ended_at=now - HOUR)
    told = commands.printed("advise", "--days", "2")
    (line,) = (line for line in told.splitlines() if line.startswith("core.import_of_a_long_name"))
    assert line.split()[:4] == ["core.import_of_a_long_name", "queue_ttl_ms", "300000", "600000"]
    assert "3 runs took 5 min and at most 5 min: short, the rule gives 10 min to 25 min" in line
    assert "raise MUSTER_WORKER_QUEUE_TTL_MS, now 300000, too" in line
    assert "timeout_seconds" not in told, "600 s is right for it"
    advised = commands.document("advise")
    (document,) = advised["actions"]
    assert advised["missing_code"] == []
    assert document["wait"] == {
        "now": 300.0,
        "least": 600.0,
        "most": 1500.0,
        "verdict": "short",
        "advised": 600.0,
    }
    assert document["run"]["verdict"] == "fits"


def test_command_is_silent_about_limits_that_nobody_set_and_nothing_came_near() -> None:
    at_home = clock.now() - HOUR
    for name in ("quick", "brief"):  # the installation's limits: longer than these need
        ran(make_action(f"core.{name}"), 2, ended_at=at_home)
    ran(make_action("core.fetch", timeout_seconds=30), 2, ended_at=at_home)
    assert commands.printed("advise") == "3 actions need no change: --all shows them.\n"
    ran(make_action("core.hoarder", timeout_seconds=86_400), 2, ended_at=at_home)
    ran(make_action("core.late", timeout_seconds=30), 20, ended_at=at_home)
    told = commands.printed("advise").splitlines()
    changed = [line.split()[:4] for line in told if line.startswith("core.")]
    assert changed == [
        ["core.hoarder", "timeout_seconds", "86400", "120"],
        ["core.late", "timeout_seconds", "30", "120"],
    ]
    assert told[-1] == "3 actions need no change: --all shows them."
    everything = commands.printed("advise", "--all")
    assert all(f"core.{name}" in everything for name in ("quick", "brief", "fetch", "late"))


def test_command_without_anything_to_go_by_says_so() -> None:
    assert commands.printed("advise") == "No action completed in the last 7 days.\n"
