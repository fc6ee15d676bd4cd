"""No worker, none yet, none for a moment."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import pytest

from tests.scenarios.installation import Installation


def test_without_a_worker_it_fails_at_once_or_waits_as_its_action_says(
    install: Callable[..., Any], measured: Callable[[str, float], None]
) -> None:
    muster: Installation = install()
    muster.start_executor()
    muster.ready()

    id = muster.submit_note("never")
    row = muster.wait_for_end(id)

    seconds = (row.ended_at - row.created_at).total_seconds()
    measured("submit to failed without a worker", seconds)
    assert seconds < 10
    assert (row.status, row.reason, row.attempt) == ("failed", "no_worker_available", 0)
    assert row.result == {
        "error": "no workers available",
        "message": "no workers available: none has ever registered",
        "failed_by": "executor",
    }
    assert muster.story(id) == ["reject"]

    patient = muster.submit_note("patient", action="note_patiently")
    waiting = muster.wait_for_status(patient, "scheduling")
    assert waiting.wait_reason == "no workers available: none has ever registered"
    muster.start_worker("w1")
    assert muster.wait_for_end(patient).status == "completed"
    assert muster.story(patient) == ["wait", "schedule", "claim", "complete"]
    assert [note.label for note in muster.journal.starts()] == ["patient"]
    muster.check_accounts()


@pytest.mark.parametrize("backend", ["embedded"], indirect=True)  # what an executor remembers
def test_what_is_submitted_as_soon_as_a_worker_is_registered_runs(
    install: Callable[..., Any],
) -> None:
    """An executor's view of the fleet may be old; what it refuses for that is lost for good."""
    muster: Installation = install()
    muster.start_executor()
    muster.ready()
    muster.start_worker("w1")
    muster.wait_until_active("w1")

    row = muster.wait_for_end(muster.submit("core.noop"))

    assert (row.status, row.attempt) == ("completed", 1)


@pytest.mark.slow
def test_lone_worker_is_restarted_and_its_backlog_survives(install: Callable[..., Any]) -> None:
    muster: Installation = install()
    muster.start_executor()
    first = muster.start_worker("w1", concurrency=1)
    muster.ready()
    ids = [muster.submit_note(f"n {number}", seconds=0.2) for number in range(8)]
    muster.wait_for_start("n 0")

    first.signal(signal.SIGTERM)
    assert first.exit_status() == 0
    assert muster.worker("w1").status == "inactive"
    muster.start_worker("w1", concurrency=1)
    rows = muster.wait_for_ends(ids)

    assert [row.status for row in rows] == ["completed"] * 8
    labels = sorted(note.label for note in muster.journal.starts())
    assert labels == [f"n {number}" for number in range(8)]
    assert muster.worker("w1").incarnation == 2
    muster.check_accounts()
