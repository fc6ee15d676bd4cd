"""Two installations share a broker, and nothing else."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.scenarios.installation import Backend, Installation

pytestmark = pytest.mark.slow


# a tick may be late by half of this, on a machine that is busy
TICKS: dict[str, Any] = {"maintenance_interval_seconds": 6}


@pytest.fixture(scope="module")
def both(backend: Backend) -> Iterator[tuple[Installation, Installation]]:
    """One in the default namespace, one in another: each with beat, an executor and a worker."""
    with ExitStack() as stack:
        first = Installation(backend, namespace="muster", **TICKS)
        stack.callback(first.close)
        second = Installation(backend, namespace="blue", beside=first, **TICKS)
        stack.callback(second.close)
        for installation in (first, second):
            installation.start_executor()
            installation.start_beat()
            # the same id in both databases, and the same name on the same host
            installation.start_worker("w1", concurrency=2)
        for installation in (first, second):
            installation.ready()
        yield first, second


def test_two_installations_on_one_broker_work_side_by_side(
    both: tuple[Installation, Installation],
) -> None:
    assert [muster.worker("w1").id for muster in both] == [1, 1]
    ids = [[muster.submit_note(f"n {n}") for n in range(20)] for muster in both]

    for muster, own in zip(both, ids, strict=True):
        rows = muster.wait_for_ends(own)
        assert {(row.status, row.attempt) for row in rows} == {("completed", 1)}
        assert sorted(n.label for n in muster.journal.starts()) == sorted(
            f"n {n}" for n in range(20)
        )
        assert muster.dlq_entries() == []
        muster.check_accounts()
    for muster in both:
        for service in muster.services:
            assert service.process.poll() is None
            assert "PRECONDITION" not in service.log()


def test_cancels_ticks_and_orders_reach_their_own_installation_alone(
    both: tuple[Installation, Installation],
) -> None:
    first, second = both
    ids = [muster.submit_note("long", is_gated=True) for muster in both]
    for muster in both:
        muster.wait_for_start("long")

    first.cancel(ids[0])
    assert first.wait_for_end(ids[0]).status == "cancelled"
    second.open_gate("long")
    assert second.wait_for_end(ids[1]).status == "completed"

    before = [muster.client.call("ticks") for muster in both]
    for muster, ticks in zip(both, before, strict=True):
        muster.wait_for(
            lambda muster=muster, ticks=ticks: all(  # type: ignore[misc]
                muster.client.call("ticks")[name] > ticks[name]
                for name in ("muster.check_timeouts", "muster.drain_dead_letters")
            ),
            "maintenance stands still",
        )
        assert "tick is missing" not in muster.services[0].log()[-2_000:]


def test_retired_worker_of_one_installation_leaves_that_of_the_other(
    both: tuple[Installation, Installation],
) -> None:
    first, second = both
    worker = first.service("w1")
    worker.signal(signal.SIGTERM)
    assert worker.exit_status() == 0
    first.retire("w1")

    assert first.client.call("queue_length", name="worker.1.executions") is None
    assert first.client.call("queue_length", name="blue.worker.1.executions") == 0
    assert second.wait_for_end(second.submit_note("after")).status == "completed"
