"""kill -9 of a pool child, of a worker's first process, of all of them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Any

import psutil
import pytest

from tests import servers

TWICE = ["schedule", "claim", "retry", "schedule", "claim", "complete"]


def test_execution_is_abandoned_when_its_process_is_killed(
    install: Callable[..., Any], measured: Callable[[str, float], None]
) -> None:
    muster = install()
    muster.start_executor()
    worker = muster.start_worker("w1")
    muster.ready()

    id = muster.submit_note("killed", seconds=30)
    pid = muster.wait_for_start("killed").pid
    assert pid != worker.pid
    os.kill(pid, signal.SIGKILL)
    killed_at = time.time()
    row = muster.wait_for_end(id)

    measured("kill -9 of a pool child to abandoned", row.ended_at.timestamp() - killed_at)
    assert (row.status, row.reason) == ("abandoned", "process_lost")
    assert row.result["error"] == "The process that ran the action died"
    assert muster.story(id) == ["schedule", "claim", "abandon"]

    again = muster.submit_note("again", action="note_again", seconds=1)
    os.kill(muster.wait_for_start("again", attempt=1).pid, signal.SIGKILL)
    killed_at = time.time()
    row = muster.wait_for_end(again)

    second = muster.journal.starts("again")[1]
    measured("kill -9 of a pool child to second attempt", second.at - killed_at)
    assert (row.status, row.attempt, row.retry_count) == ("completed", 2, 1)
    assert muster.story(again) == TWICE
    assert [note.attempt for note in muster.journal.starts("again")] == [1, 2]
    assert [note.attempt for note in muster.journal.ends("again")] == [2]

    shell = muster.submit_note("shell", action="note_shell", seconds=30, children=2)
    muster.wait_for(lambda: len(muster.processes_of(shell)) >= 8, "its children did not start")
    os.kill(_pool_child_of(muster.wait_for_start("shell").pid, worker.pid), signal.SIGKILL)

    assert muster.wait_for_end(shell).reason == "process_lost"
    muster.wait_for(lambda: not muster.processes_of(shell), "its children live on")
    assert worker.process.poll() is None
    assert muster.worker("w1").incarnation == 1
    muster.check_accounts()


def _pool_child_of(pid: int, worker_pid: int) -> int:
    """The process between the worker and what it runs."""
    ancestors = [process.pid for process in psutil.Process(pid).parents()]
    return ancestors[ancestors.index(worker_pid) - 1]


def test_what_a_killed_worker_ran_is_abandoned_or_runs_again_elsewhere(
    install: Callable[..., Any], measured: Callable[[str, float], None]
) -> None:
    muster = install()
    muster.start_executor()
    w1 = muster.start_worker("w1", concurrency=3)
    muster.ready()
    once = muster.submit_note("once", seconds=30)
    again = muster.submit_note("again", action="note_again", seconds=1.5)
    shell = muster.submit_note("shell", action="note_shell", seconds=30, children=1)
    for label in ("once", "again", "shell"):
        muster.wait_for_start(label)
    muster.start_worker("w2", concurrency=3)

    w1.kill_tree()
    killed_at = time.time()
    rows = muster.wait_for_ends([once, again, shell])

    assert [row.status for row in rows] == ["abandoned", "completed", "abandoned"]
    assert [row.reason for row in rows] == ["worker_lost", "succeeded", "worker_lost"]
    assert rows[0].result["failed_by"] == "heartbeat_staleness_check"
    assert rows[1].worker_id == muster.worker("w2").id
    story = [event for event in muster.story(again) if event != "wait"]  # for w2 to be up
    assert story == TWICE
    assert muster.story(once) == ["schedule", "claim", "abandon"]
    lost = muster.worker("w1")
    assert (lost.status, lost.status_reason) == ("inactive", "heartbeat stale")
    noticed_seconds = rows[0].ended_at.timestamp() - killed_at
    measured("kill -9 of a worker (window 4 s) to abandoned", noticed_seconds)
    second = muster.wait_for_start("again", attempt=2)
    measured("kill -9 of a worker (window 4 s) to second attempt", second.at - killed_at)
    assert noticed_seconds < 10
    muster.check_accounts()


@pytest.mark.slow
def test_actions_end_with_their_worker_and_before_a_second_attempt(
    install: Callable[..., Any],
) -> None:
    """Only the first process is killed: its pool children must not go on without it."""
    muster = install()
    muster.start_executor()
    w1 = muster.start_worker("w1")
    muster.ready()
    id = muster.submit_note("python", action="note_again", seconds=4)
    shell = muster.submit_note("shell", action="note_shell", seconds=30, children=1)
    first = muster.wait_for_start("python")
    command = psutil.Process(muster.wait_for_start("shell").pid)
    children = psutil.Process(w1.pid).children()
    assert first.pid in [child.pid for child in children]

    w1.kill()
    muster.wait_for(
        lambda: not any(map(servers.is_alive, [*children, command])),
        "processes outlive their worker",
        within_seconds=2,
    )
    muster.start_worker("w1")
    rows = muster.wait_for_ends([id, shell])

    assert [(row.status, row.attempt) for row in rows] == [("completed", 2), ("abandoned", 1)]
    notes = [(note.event, note.attempt) for note in muster.journal.notes(label="python")]
    assert notes == [("start", 1), ("start", 2), ("end", 2)]
    assert muster.journal.starts("python")[1].pid != first.pid
    muster.wait_for(lambda: not muster.processes_of(shell), "its children live on")
    muster.check_accounts()
