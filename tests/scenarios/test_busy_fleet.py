"""A fleet that is merely busy: work waits longer than any TTL, and none of it fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.scenarios.installation import Installation

TTL = {"worker_queue_ttl_ms": 4_000, "start_grace_seconds": 1}


@pytest.mark.slow
def test_work_behind_an_action_that_outlasts_the_ttl_runs_when_it_is_over(
    install: Callable[..., Any],
) -> None:
    muster: Installation = install(**TTL)
    muster.start_executor()
    muster.start_worker("w1", concurrency=1)
    muster.ready()
    long = muster.submit_note("long", seconds=9)
    muster.wait_for_start("long")

    ids = [muster.submit_note(f"short {number}") for number in range(3)]
    rows = muster.wait_for_ends([long, *ids], within_seconds=40)

    assert [(row.status, row.retry_count) for row in rows] == [("completed", 0)] * 4
    ends_of_waits = [event for id in ids for event in muster.story(id) if event == "expire"]
    assert ends_of_waits == []
    assert len(muster.journal.starts()) == 4
    assert muster.dlq_entries() == []
    muster.check_accounts()


@pytest.mark.slow
def test_what_was_sent_ahead_of_a_long_action_moves_to_a_worker_that_falls_free(
    install: Callable[..., Any], measured: Callable[[str, float], None]
) -> None:
    muster: Installation = install()
    muster.start_executor()
    muster.start_worker("w1", concurrency=1)
    muster.ready()
    # both at once: nobody knows yet that the first takes long
    journal = str(muster.journal.path)
    long, ahead = muster.submit_many(
        [
            {"parameters": {"journal": journal, "label": "long", "seconds": 25}},
            {"parameters": {"journal": journal, "label": "next"}},
        ],
        "scenario.note",
    )
    muster.wait_for_start("long")
    muster.wait_for_status(ahead, "scheduled")
    muster.start_worker("w2", concurrency=1)

    row = muster.wait_for_end(ahead)

    assert (row.status, row.worker_id, row.retry_count) == ("completed", muster.worker("w2").id, 0)
    assert muster.story(ahead) == ["schedule", "give_back", "schedule", "claim", "complete"]
    waited_seconds = (row.started_at - muster.worker("w2").registered_at).total_seconds()
    measured("behind a long action, from a free worker's registration to its start", waited_seconds)
    assert waited_seconds < 12
    assert muster.execution(long).status == "running"
