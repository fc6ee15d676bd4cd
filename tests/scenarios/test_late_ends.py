"""With broker and beat away, ends come from the executors' watchdogs, and come in time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.scenarios.installation import Installation

BY_DESIGN_SECONDS_LATE = 10.0
"""At most, on a machine that has the time: see `tasks.watchdog`."""
PROMISED_SECONDS_LATE = 20.0
BY_DEFAULT = {
    "maintenance_interval_seconds": 5,
    "publish_timeout_seconds": 3,
    "heartbeat_interval_seconds": 10,
    "staleness_multiplier": 3,
}


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["servers"], indirect=True)
@pytest.mark.parametrize("fault", ["kill", "pause"])
def test_ends_come_in_time_with_the_broker_and_beat_away(
    install: Callable[..., Any], measured: Callable[[str, float], None], fault: str
) -> None:
    muster: Installation = install(**BY_DEFAULT)
    muster.start_executor()
    beat = muster.start_beat()
    worker = muster.start_worker("w1")
    muster.ready()
    muster.wait_for_end(muster.submit("core.noop"))
    muster.wait_for(lambda: len(muster.client.call("ticks")) >= 4, "beat does not tick")
    # alive by its heartbeat, and claims nothing: what it was sent is to be sent again
    worker.pause_tree()
    # over more than two intervals of maintenance
    news: list[dict[str, Any]] = [{"deadline_seconds": 8 + n / 2} for n in range(24)]
    ids = muster.submit_many(news, "core.noop")
    muster.wait_for_status(ids[0], "scheduled")

    beat.kill_tree()
    getattr(muster.backend.rabbit, fault)()
    rows = muster.wait_for_ends(ids, within_seconds=180)

    late = sorted((row.ended_at - row.deadline_at).total_seconds() for row in rows)
    measured(f"latest end after its deadline, broker after {fault}()", late[-1])
    assert late[-1] <= PROMISED_SECONDS_LATE
    assert late[len(late) // 2] <= BY_DESIGN_SECONDS_LATE
