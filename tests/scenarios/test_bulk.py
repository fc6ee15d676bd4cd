"""A bulk order survives the executor that works on it, and touches what it was about alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.scenarios.installation import PATIENCE_SECONDS, START_SECONDS

ROWS, LATER, BY_HAND = 400, 20, 5
REASON = "wrong host"
SLEEP = {"parameters": {"seconds": 300}}
OPEN = {"requested", "scheduling", "scheduled", "running"}


def bulk(muster: Any, *arguments: str) -> Any:
    """What the command tells scripts, asked in a process that is up."""
    (text,) = muster.client.call("printed", commands=[["bulk", *arguments, "--json"]])
    return json.loads(text)


@pytest.mark.slow
def test_an_executor_is_killed_in_the_middle_of_an_order_and_another_one_ends_it(
    install: Callable[..., Any], measured: Callable[[str, float], None]
) -> None:
    muster = install()
    before = muster.start_executor("executor-0")
    muster.start_worker("w1")
    muster.ready()
    before.kill_tree()
    ids = muster.submit_many([SLEEP] * ROWS, "core.sleep")
    order = bulk(muster, "order", "cancel", "status:open", "--reason", REASON)
    assert (order["matched"], order["state"]) == (ROWS, "ordered")
    # these match no longer when their turn comes
    gone = sorted(ids)[-BY_HAND:]
    for id in gone:
        assert muster.cancel(id) == "cancelled"

    first = muster.start_executor()
    muster.wait_for(lambda: bulk(muster, "show", order["id"])["position"] > 0, "it did not begin")
    first.kill_tree()
    at = bulk(muster, "show", order["id"])
    assert at["state"] == "working"
    assert 0 < at["position"] < ROWS
    done = [row for row in muster.executions(ids).values() if row.cancel_reason == REASON]
    assert len(done) == at["position"], "the mark is not what was done"
    later = muster.submit_many([SLEEP] * LATER, "core.sleep")

    muster.start_executor("executor-2")
    muster.wait_for(
        lambda: bulk(muster, "show", order["id"])["state"] == "done",
        "it has no end",
        within_seconds=START_SECONDS + PATIENCE_SECONDS,
    )
    ended = bulk(muster, "show", order["id"])
    assert (ended["position"], ended["refused"]) == (ROWS, BY_HAND)
    seconds = ROWS / ended["rows_per_second"]
    measured(f"bulk cancel of {ROWS}, its executor killed once", seconds)
    rows = muster.executions([*ids, *later])
    assert {rows[id].status for id in ids} <= {"cancelled", "canceling"}
    assert sum(rows[id].cancel_reason == REASON for id in ids) == ROWS - BY_HAND
    assert {rows[id].status for id in later} <= OPEN
    muster.wait_for_ends(ids)
    muster.check_accounts()
    shown = muster.client.call("printed", commands=[["bulk", "show", order["id"]]])[0]
    assert all(str(id) in shown and "no-longer-matches" in shown for id in gone)
