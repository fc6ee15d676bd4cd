"""A fleet that is merely busy: work waits longer than any TTL, and none of it fails."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.scenarios.installation import Installation

TTL = {"worker_queue_ttl_ms": 6_000, "staleness_multiplier": 12, "start_grace_seconds": 1}


@pytest.mark.slow
def test_work_behind_an_action_that_outlasts_the_ttl_runs_when_it_is_over(
    install: Callable[..., Any],
) -> None:
    muster: Installation = install(**TTL)
    muster.start_executor()
    muster.start_worker("w1", concurrency=1)
    muster.ready()
    shorts = [{"label": f"short {number}"} for number in range(3)]
    long, ahead, *more = muster.submit_notes({"label": "long", "is_gated": True}, *shorts)

    muster.wait_for(lambda: "give_back" in muster.story(ahead), "its TTL does not end")
    muster.open_gate("long")
    ids = [long, ahead, *more]
    rows = muster.wait_for_ends(ids)

    assert [(row.status, row.retry_count) for row in rows] == [("completed", 0)] * 4
    ends_of_waits = [event for id in ids for event in muster.story(id) if event == "expire"]
    assert ends_of_waits == []
    assert len(muster.journal.starts()) == 4
    assert muster.dlq_entries() == []
    muster.check_accounts()


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["servers"], indirect=True)
def test_what_was_sent_ahead_of_a_long_action_moves_to_a_worker_that_falls_free(
    install: Callable[..., Any], measured: Callable[[str, float], None]
) -> None:
    muster: Installation = install()
    muster.start_executor()
    muster.start_worker("w1", concurrency=1)
    muster.ready()
    long, ahead = muster.submit_notes({"label": "long", "is_gated": True}, {"label": "next"})
    muster.wait_for_start("long")
    muster.wait_for_status(ahead, "scheduled")
    muster.start_worker("w2", concurrency=1)
    muster.ready()
    free_at = time.time()

    row = muster.wait_for_end(ahead)

    assert (row.status, row.worker_id, row.retry_count) == ("completed", muster.worker("w2").id, 0)
    assert muster.story(ahead) == ["schedule", "give_back", "schedule", "claim", "complete"]
    waited_seconds = row.started_at.timestamp() - free_at
    measured("behind a long action, from a free worker to its start", waited_seconds)
    assert waited_seconds < 20, "its TTL is 30 s"
    assert muster.execution(long).status == "running"
