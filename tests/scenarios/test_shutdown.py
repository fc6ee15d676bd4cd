"""SIGTERM: a worker takes no more, finishes what runs, and says goodbye."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from typing import Any

from tests.scenarios.installation import Installation


def test_worker_told_to_stop_finishes_what_runs_and_gives_back_the_rest(
    install: Callable[..., Any], measured: Callable[[str, float], None]
) -> None:
    muster: Installation = install()
    muster.start_executor()
    w1 = muster.start_worker("w1", concurrency=1)
    muster.ready()
    running = muster.submit_note("running", seconds=3)
    muster.wait_for_start("running")
    waiting = muster.submit_note("waiting")
    muster.wait_for_status(waiting, "scheduled")
    muster.start_worker("w2", concurrency=1)

    began = time.monotonic()
    w1.signal(signal.SIGTERM)
    muster.wait_for(lambda: muster.worker("w1").status == "draining", "w1 does not drain")
    measured("SIGTERM of a worker to draining", time.monotonic() - began)
    assert muster.execution(running).status == "running"
    assert w1.exit_status() == 0

    rows = muster.wait_for_ends([running, waiting])
    assert [row.status for row in rows] == ["completed", "completed"]
    assert (rows[0].worker_id, rows[0].attempt) == (muster.worker("w1").id, 1)
    assert rows[1].worker_id == muster.worker("w2").id
    stopped = muster.worker("w1")
    assert (stopped.status, stopped.status_reason) == ("inactive", "stopped")
    assert [note.label for note in muster.journal.starts()] == ["running", "waiting"]
    assert muster.story(running) == ["schedule", "claim", "complete"]
    muster.check_accounts()


def test_worker_that_does_not_finish_in_time_kills_what_runs(install: Callable[..., Any]) -> None:
    muster: Installation = install(shutdown_timeout_seconds=1)
    muster.start_executor()
    w1 = muster.start_worker("w1")
    muster.ready()
    python = muster.submit_note("python", seconds=30)
    shell = muster.submit_note("shell", action="note_shell", seconds=30, children=1)
    for label in ("python", "shell"):
        muster.wait_for_start(label)

    w1.signal(signal.SIGTERM)
    assert w1.exit_status() == 0

    rows = muster.wait_for_ends([python, shell])
    assert rows[0].status == "abandoned"
    assert rows[1].status in ("abandoned", "failed")
    muster.wait_for(lambda: not muster.processes_of(shell), "its children live on")
    assert muster.worker("w1").status == "inactive"
    assert muster.journal.ends() == []
    muster.check_accounts()


def test_executor_told_to_stop_exits_and_another_goes_on(install: Callable[..., Any]) -> None:
    muster: Installation = install()
    first = muster.start_executor()
    muster.start_worker("w1")
    muster.ready()
    assert muster.wait_for_end(muster.submit("core.noop")).status == "completed"

    first.signal(signal.SIGTERM)
    assert first.exit_status() == 0
    id = muster.submit("core.noop")
    assert muster.execution(id).status == "requested"
    muster.start_executor("executor2")

    assert muster.wait_for_end(id).status == "completed"
    assert muster.story(id) == ["schedule", "claim", "complete"]
