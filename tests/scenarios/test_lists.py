"""One message that dispatches several executions: taken in part, delivered again, expired."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

import pytest

from tests.scenarios.installation import SOON_LOST, Backend, Installation

LABELS = ("first", "second", "third", "fourth")
GATED: list[dict[str, Any]] = [{"label": label, "is_gated": True} for label in LABELS]
UNEXPIRED = {"worker_queue_ttl_ms": 240_000, **SOON_LOST}
"""The message comes again when `rabbitmqctl` has closed its connection, which may take a minute."""
BY_DRAIN = {"worker_queue_ttl_ms": 4_000, "start_grace_seconds": 30, **SOON_LOST}


def dispatched_together(muster: Installation) -> list[list[str]]:
    """The ids in each dispatch that the executor has sent."""
    told = muster.client.call("taken", queue="tap")
    return [[id for id, _ in kwargs["attempts"]] for _, kwargs, _ in told]


@pytest.fixture
def half_taken(install: Callable[..., Any]) -> tuple[Installation, Any, list[UUID]]:
    """A worker of two slots that has claimed two of the four executions of one message."""
    muster = install(**UNEXPIRED)
    muster.start_executor()
    worker = muster.start_worker("w1", concurrency=2)
    muster.ready()
    key = f"execution.dispatch.worker.{muster.worker('w1').id}"
    muster.client.call("tap", name="tap", routing_key=key)
    ids = muster.submit_notes(*GATED)
    for label in LABELS[:2]:
        muster.wait_for_start(label)
    assert [muster.execution(id).status for id in ids[2:]] == ["scheduled"] * 2
    assert dispatched_together(muster) == [[str(id) for id in ids]]
    return muster, worker, ids


def open_gates(muster: Installation, labels: Sequence[str] = LABELS) -> None:
    for label in labels:
        muster.open_gate(label)


@pytest.mark.parametrize("backend", ["servers"], indirect=True)
def test_list_that_comes_again_starts_what_it_has_not_started(
    half_taken: tuple[Installation, Any, list[UUID]], backend: Backend
) -> None:
    muster, _, ids = half_taken
    backend.close_connections(muster.broker_url)

    open_gates(muster)
    rows = muster.wait_for_ends(ids)

    assert [(row.status, row.attempt) for row in rows] == [("completed", 1)] * 4
    assert sorted(note.label for note in muster.journal.starts()) == sorted(LABELS)
    assert muster.dlq_entries() == []
    muster.check_accounts()


def test_list_of_a_killed_worker_is_given_back_where_nothing_was_started(
    half_taken: tuple[Installation, Any, list[UUID]],
) -> None:
    muster, worker, ids = half_taken
    worker.kill_tree()
    muster.start_worker("w1", concurrency=2)

    open_gates(muster)
    rows = muster.wait_for_ends(ids)

    assert [row.status for row in rows] == ["abandoned"] * 2 + ["completed"] * 2
    assert sorted(note.label for note in muster.journal.starts()) == sorted(LABELS)
    muster.check_accounts()


def test_each_execution_of_a_list_that_expires_fails_with_an_entry_of_its_own(
    install: Callable[..., Any],
) -> None:
    muster = install(**BY_DRAIN)
    muster.start_executor()
    w1 = muster.start_worker("w1")
    muster.ready()
    worker_id = muster.worker("w1").id
    key = f"execution.dispatch.worker.{worker_id}"
    muster.client.call("tap", name="tap", routing_key=key)
    w1.kill_tree()

    ids = muster.submit_notes(*({"label": label, "worker_id": worker_id} for label in LABELS))
    rows = muster.wait_for_ends(ids)

    assert {(row.status, row.reason) for row in rows} == {("failed", "queue_ttl_expired")}
    assert dispatched_together(muster) == [[str(id) for id in ids]]
    assert all(muster.story(id) == ["schedule", "expire"] for id in ids)
    entries = muster.dlq_entries()
    assert sorted(entry.subject_id for entry in entries) == sorted(ids)
    assert {entry.original_queue for entry in entries} == {
        f"scenario.worker.{worker_id}.executions"
    }
    assert muster.journal.notes() == []
    muster.check_accounts()
