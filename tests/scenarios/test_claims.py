"""What is claimed on a worker that lives is started: nothing hangs between claim and end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from tests.chaos import injection
from tests.scenarios.installation import REPOSITORY, Installation

INJECTED = REPOSITORY / "tests" / "chaos" / "injected"
LONG_THERE = {"staleness_multiplier": 60}
"""A frozen worker counts as there, however slow this machine is."""

IN_TIME_SECONDS = 20.0
"""Less than any limit of a statement."""

GIVEN_BACK = ["schedule", "claim", "give_back", "schedule", "claim", "complete"]


@pytest.mark.parametrize(
    ("backend", "pool"),
    [("embedded", "prefork"), ("servers", "prefork"), ("servers", "threads")],
    indirect=["backend"],
)
def test_stale_dispatch_and_the_true_one_in_a_batch_start_the_true_one(
    install: Callable[..., Any], pool: str
) -> None:
    muster: Installation = install(**LONG_THERE)
    muster.start_executor()
    worker = muster.start_worker("w1", concurrency=4, pool=pool)
    muster.ready()
    worker.pause_tree()
    id = muster.submit_note("once", timeout_seconds=30)
    muster.wait_for_status(id, "scheduled")
    muster.client.call("give_back", worker="w1")
    muster.wait_for(lambda: muster.execution(id).attempt == 2, "it is not dispatched again")
    worker.resume_tree()

    row = muster.wait_for_end(id)

    assert (row.status, row.attempt) == ("completed", 2)
    assert muster.story(id) == ["schedule", "give_back", "schedule", "claim", "complete"]
    assert len(muster.journal.starts("once")) == 1
    muster.check_accounts()


@pytest.mark.parametrize("backend", ["servers"], indirect=True)  # a file loses no answer
@pytest.mark.slow
def test_claim_whose_answer_was_lost_is_given_back_and_runs(install: Callable[..., Any]) -> None:
    """It has committed, and the connection was gone before the worker heard of it."""
    muster: Installation = install()
    points = muster.directory / "failpoints"
    for name in ("armed", "fired"):
        (points / name).mkdir(parents=True)
    site = injection.file_name("worker", "executions.attempts:claim:claim", injection.LIE)
    muster.start_executor()
    environment: dict[str, Any] = {
        injection.DIRECTORY: str(points),
        injection.ROLE: "worker",
        "PYTHONPATH": f"{INJECTED}:{REPOSITORY}",
    }
    muster.start_worker("w1", **environment)
    muster.ready()
    (points / "armed" / site).touch()
    id = muster.submit_note("once", timeout_seconds=300)
    other = muster.submit_note("other", seconds=3)

    row = muster.wait_for_end(id)

    assert (points / "fired" / site).exists()
    assert (row.status, row.retry_count) == ("completed", 0)
    both = [muster.story(each) for each in (id, other)]
    assert GIVEN_BACK in both
    assert muster.wait_for_end(other).status == "completed"
    assert len(muster.journal.starts("once")) == len(muster.journal.starts("other")) == 1
    muster.check_accounts()


@pytest.mark.parametrize("backend", ["servers"], indirect=True)
def test_rows_that_somebody_holds_keep_no_other_from_its_claim_or_its_end(
    install: Callable[..., Any],
) -> None:
    muster: Installation = install(**LONG_THERE)
    muster.start_executor()
    worker = muster.start_worker("w1", concurrency=2)
    muster.ready()
    ending = muster.submit_note("ending", is_gated=True)
    muster.wait_for_start("ending")
    worker.pause_tree()
    starting = muster.submit_note("starting")
    muster.wait_for_status(starting, "scheduled")
    with psycopg.connect(muster.environment["DATABASE_URL"]) as session:
        for id in (ending, starting):
            session.execute(
                "SELECT 1 FROM orchestrator_execution WHERE id = %s FOR UPDATE", [id]
            ).fetchone()
        worker.resume_tree()
        others = [muster.submit_note(f"other {number}") for number in range(4)]
        rows = muster.wait_for_ends(others, within_seconds=IN_TIME_SECONDS)
        assert [row.status for row in rows] == ["completed"] * 4
        muster.open_gate("ending")
        muster.wait_for(lambda: muster.journal.ends("ending"), "it did not end")
        assert muster.execution(ending).status == "running"
        assert muster.execution(starting).status == "scheduled"
        session.rollback()

    rows = muster.wait_for_ends([ending, starting], within_seconds=IN_TIME_SECONDS)

    assert [(row.status, row.attempt) for row in rows] == [("completed", 1)] * 2
    muster.check_accounts()
