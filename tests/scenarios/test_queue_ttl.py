"""What its worker does not take in time: queue TTL, dead letter exchange, drain, failed."""

from __future__ import annotations

from collections.abc import Callable
from signal import SIGTERM
from typing import Any

import pytest

from tests.scenarios.installation import SOON_LOST, Backend, Installation

TTL = {"worker_queue_ttl_ms": 4_000, **SOON_LOST}
BY_DRAIN = {"start_grace_seconds": 30}
"""The drain of dead letters comes long before the sweep."""
BY_SWEEP = {"start_grace_seconds": 2}


def test_what_a_dead_worker_leaves_in_its_queue_has_failed_after_the_ttl(
    install: Callable[..., Any], measured: Callable[[str, float], None]
) -> None:
    muster = install(**TTL, **BY_DRAIN)
    muster.client.call("tap", name="tap", routing_key="execution.completed")
    muster.start_executor()
    w1 = muster.start_worker("w1")
    muster.ready()
    w1.kill_tree()  # its heartbeat stays fresh for a while
    worker_id = muster.worker("w1").id

    id = muster.submit_note("never")
    row = muster.wait_for_end(id)

    assert (row.status, row.reason) == ("failed", "queue_ttl_expired")
    assert row.result == {
        "error": "Worker queue TTL expired",
        "message": "w1 did not take the execution within 4 s; it may be down or overloaded",
        "failed_by": "dead_letter_handler",
    }
    assert muster.story(id) == ["schedule", "expire"]
    waited_seconds = (row.ended_at - row.scheduled_at).total_seconds()
    measured("a queue's TTL of 4 s, dispatch to failed", waited_seconds)
    # the drain stamps what it settles with the time at which it began to look
    assert 3.5 <= waited_seconds < 30
    [entry] = muster.dlq_entries()
    assert (entry.subject_id, entry.attempt) == (id, 1)
    assert entry.dlq_reason == "queue_ttl_expired"
    assert entry.original_exchange == "scenario.executions"
    assert entry.original_queue == f"scenario.worker.{worker_id}.executions"
    assert entry.original_routing_key == f"execution.dispatch.worker.{worker_id}"
    [death] = entry.x_death
    assert (death["reason"], death["count"]) == ("expired", 1)
    assert death["queue"] == f"scenario.worker.{worker_id}.executions"
    assert (entry.snapshot["id"], entry.snapshot["status"]) == (str(id), "scheduled")
    told = muster.wait_for(lambda: muster.client.call("taken", queue="tap"), "nothing was told")
    assert [kwargs for _, kwargs, _ in told] == [{"execution_ids": [str(id)]}]
    assert muster.journal.notes() == []
    muster.check_accounts()


def test_attempt_that_expired_is_followed_by_one_on_another_worker(
    install: Callable[..., Any],
) -> None:
    # before w1 is found to be lost: then it would go elsewhere for that
    muster = install(staleness_multiplier=60, **BY_DRAIN)
    muster.start_executor()
    w1 = muster.start_worker("w1")
    muster.start_worker("w2")
    muster.ready()
    muster.client.call("order", verb="cordon", worker="w2")
    muster.wait_until_all_goes_to("w1")
    w1.kill_tree()
    id = muster.submit_note("second", action="note_again", queue_ttl_ms=1_000)
    muster.wait_for_status(id, "scheduled")
    muster.client.call("order", verb="uncordon", worker="w2")

    row = muster.wait_for_end(id)

    assert (row.status, row.attempt, row.retry_count) == ("completed", 2, 1)
    assert row.worker_id == muster.worker("w2").id
    assert muster.story(id) == ["schedule", "retry", "schedule", "claim", "complete"]
    [entry] = muster.dlq_entries()
    assert (entry.subject_id, entry.attempt) == (id, 1)
    assert [note.attempt for note in muster.journal.starts("second")] == [2]
    muster.check_accounts()


@pytest.mark.parametrize("backend", ["servers"], indirect=True)
def test_what_a_frozen_worker_holds_unacknowledged_has_failed_after_start_by(
    install: Callable[..., Any],
) -> None:
    """TTL does not run once a message is delivered: here the sweep is the guarantee."""
    muster = install(**TTL, **BY_SWEEP)
    muster.start_executor()
    w1 = muster.start_worker("w1")
    muster.ready()
    w1.pause_tree()

    id = muster.submit_note("never", worker_id=muster.worker("w1").id)
    row = muster.wait_for_end(id)

    assert (row.status, row.reason) == ("failed", "scheduled_timeout")
    text = "Execution timeout: worker did not pick up task within timeout"
    assert (row.result["error"], row.result["failed_by"]) == (text, "execution_timeout_monitor")
    assert (row.ended_at - row.start_by).total_seconds() < 15
    w1.resume_tree()
    assert w1.exit_status() == 70
    assert muster.execution(id).status == "failed"
    assert muster.journal.notes() == []
    muster.check_accounts()


@pytest.mark.parametrize("backend", ["servers"], indirect=True)
def test_ttl_behind_an_older_message_is_kept_by_the_sweep(install: Callable[..., Any]) -> None:
    """RabbitMQ expires only what has come to the head of its queue."""
    muster = install(**BY_SWEEP)
    muster.start_executor()
    w1 = muster.start_worker("w1")
    muster.ready()
    w1.kill_tree()
    worker_id = muster.worker("w1").id
    older = muster.submit_note("older", worker_id=worker_id)
    muster.wait_for_status(older, "scheduled")

    younger = muster.submit_note("younger", worker_id=worker_id, queue_ttl_ms=1_000)
    row = muster.wait_for_end(younger)

    assert (row.status, row.reason) == ("failed", "scheduled_timeout")
    assert row.result["failed_by"] == "execution_timeout_monitor"
    assert (row.start_by - row.scheduled_at).total_seconds() == pytest.approx(3, abs=0.1)
    assert (row.ended_at - row.start_by).total_seconds() < 15
    assert muster.execution(older).status == "scheduled"
    queue = f"scenario.worker.{worker_id}.executions"
    assert muster.client.call("queue_length", name=queue) == 2, "the broker still has both"
    muster.check_accounts()


@pytest.mark.slow
def test_worker_with_a_login_of_its_own_names_the_queue_whose_ttl_was_changed(
    servers_backend: Backend,
) -> None:
    muster = Installation(servers_backend, worker_queue_ttl_ms=40_000)
    try:
        muster.start_executor()
        first = muster.start_worker("w1")
        muster.ready()
        first.signal(SIGTERM)
        assert first.exit_status() == 0
        second = muster.start_worker("w1", MUSTER_WORKER_QUEUE_TTL_MS="50000")
        assert second.exit_status() == 1
        queue = f"queue scenario.worker.{muster.worker('w1').id}.executions"
        assert f"{queue}: x-message-ttl: wanted 50000, found 40000" in second.log()
        assert "topology migrate" in second.log()
        assert "waiting for an executor" not in second.log()
    finally:
        muster.close()
