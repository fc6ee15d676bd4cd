"""With beat its ticks do the maintenance; without it the executor's watchdog does."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from orchestrator.core import maintenance
from tests.scenarios.installation import Installation

MISSING = "beat's tick is missing"
OFTEN = {
    name
    for name, each in maintenance.functions().items()
    if each.interval == "maintenance_interval_seconds"
}


@pytest.mark.slow
def test_watchdog_is_silent_while_beat_ticks_and_takes_over_when_it_dies(
    install: Callable[..., Any],
) -> None:
    # its tick may be late by half of this, on a machine that is busy
    muster: Installation = install(maintenance_interval_seconds=6)
    executor = muster.start_executor()
    beat = muster.start_beat()
    muster.ready()

    def ran() -> dict[str, Any]:
        ticks: dict[str, Any] = muster.client.call("ticks")
        return {name: at for name, at in ticks.items() if name in OFTEN}

    def all_ran_after(earlier: dict[str, Any]) -> bool:
        now = ran()
        return all(now[name] > at for name, at in earlier.items())

    muster.wait_for(lambda: "Sending due task" in beat.log(), "beat does not tick")
    muster.wait_for(lambda: len(ran()) == len(OFTEN), "nothing ran")
    # the first of all, when there was no tick yet, may be the watchdog's
    muster.wait_for(partial(all_ran_after, ran()), "nothing ran again")
    told_before = executor.log().count(MISSING)
    for _ in range(2):
        muster.wait_for(partial(all_ran_after, ran()), "beat's ticks stopped")
    assert executor.log().count(MISSING) == told_before

    beat.kill_tree()
    never = muster.submit_note("never", action="note_patiently", deadline_seconds=2)
    row = muster.wait_for_end(never)

    assert (row.status, row.reason) == ("failed", "deadline_passed")
    muster.wait_for(
        lambda: executor.log().count(MISSING) > told_before, "the watchdog did not take over"
    )
    muster.check_accounts()
