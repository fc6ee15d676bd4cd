"""A message is a hint: however many copies of it arrive, its attempt starts once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

STORY = ["schedule", "claim", "complete"]


@pytest.mark.parametrize(
    ("backend", "pool"),
    [("embedded", "prefork"), ("servers", "prefork"), ("servers", "threads")],
    indirect=["backend"],
)
def test_five_copies_of_a_dispatch_message_start_it_once(
    install: Callable[..., Any], pool: str
) -> None:
    muster = install()
    muster.start_executor()
    muster.start_worker("w1", concurrency=1, pool=pool)
    muster.ready()
    worker_id = muster.worker("w1").id
    gated = [{"label": label, "is_gated": True} for label in ("first", "second")]
    first, second = muster.submit_notes(*gated)
    muster.wait_for_start("first")
    muster.wait_for_status(second, "scheduled")

    def publish_copies() -> None:
        for id in (first, second):
            lost = muster.client.call(
                "dispatch_again", id=id, attempt=1, worker_id=worker_id, copies=5
            )
            assert lost == 0

    publish_copies()  # one runs, one waits
    muster.open_gate("first")
    muster.wait_for_start("second")
    publish_copies()  # one is over, one runs
    muster.open_gate("second")
    rows = muster.wait_for_ends([first, second])
    publish_copies()  # both are over
    muster.wait_for_end(muster.submit_note("last"))
    queue = f"scenario.worker.{worker_id}.executions"
    muster.wait_for(
        lambda: muster.client.call("queue_length", name=queue) == 0, "copies stay in the queue"
    )

    assert [(row.status, row.attempt) for row in rows] == [("completed", 1)] * 2
    assert muster.story(first) == muster.story(second) == STORY
    assert [note.label for note in muster.journal.starts()] == ["first", "second", "last"]
    assert muster.dlq_entries() == []
    muster.check_accounts()
