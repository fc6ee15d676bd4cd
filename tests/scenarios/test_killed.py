"""kill -9 of an action's process, of a pool child, of a worker's first process, of all of them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import UUID

import psutil
import pytest

from tests import servers
from tests.scenarios.installation import SOON_LOST, Installation

TWICE = ["schedule", "claim", "retry", "schedule", "claim", "complete"]


def test_execution_is_abandoned_when_its_process_is_killed(
    shared: Installation, measured: Callable[[str, float], None]
) -> None:
    id = shared.submit_note("killed", seconds=300)
    pid = shared.wait_for_start("killed").pid
    assert pid not in [service.pid for service in shared.services]
    os.kill(pid, signal.SIGKILL)
    killed_at = time.time()
    row = shared.wait_for_end(id)

    measured("kill -9 of an action's process to abandoned", row.ended_at.timestamp() - killed_at)
    assert (row.status, row.reason) == ("abandoned", "process_lost")
    assert row.result["error"] == "The process that ran the action died"
    assert shared.story(id) == ["schedule", "claim", "abandon"]

    again = shared.submit_note("again", action="note_again", is_gated=True)
    os.kill(shared.wait_for_start("again", attempt=1).pid, signal.SIGKILL)
    killed_at = time.time()
    shared.open_gate("again")
    row = shared.wait_for_end(again)

    second = shared.journal.starts("again")[1]
    measured("kill -9 of an action's process to second attempt", second.at - killed_at)
    assert (row.status, row.attempt, row.retry_count) == ("completed", 2, 1)
    assert shared.story(again) == TWICE
    assert [note.attempt for note in shared.journal.starts("again")] == [1, 2]
    assert [note.attempt for note in shared.journal.ends("again")] == [2]

    here = {"worker_id": shared.worker("w1").id}
    for action, most in (("note_shell", 8), ("note", 4)):
        below = shared.submit_note(action, action=action, seconds=300, children=2, **here)
        shared.wait_for(partial(_has, shared, below, most), "its children did not start")
        process = psutil.Process(shared.wait_for_start(action).pid)
        os.kill(pool_child_of(process.pid, shared.service("w1").pid), signal.SIGKILL)

        assert shared.wait_for_end(below).reason == "process_lost"
        assert not servers.is_alive(process), "it outlives the record of its end"
        shared.wait_for(partial(_has_none, shared, below), "its children live on")
    shared.check_lives()
    shared.check_accounts()


def _has_none(muster: Installation, id: UUID) -> bool:
    return not muster.processes_of(id)


def _has(muster: Installation, id: UUID, most: int) -> bool:
    return len(muster.processes_of(id)) >= most


def pool_child_of(pid: int, worker_pid: int) -> int:
    """The process between the worker and what it runs."""
    ancestors = [process.pid for process in psutil.Process(pid).parents()]
    return ancestors[ancestors.index(worker_pid) - 1]


def test_what_a_killed_worker_ran_is_abandoned_or_runs_again_elsewhere(
    install: Callable[..., Any], measured: Callable[[str, float], None]
) -> None:
    muster = install(**SOON_LOST)
    muster.start_executor()
    w1 = muster.start_worker("w1", concurrency=3)
    muster.ready()
    once = muster.submit_note("once", seconds=300)
    again = muster.submit_note("again", action="note_again", is_gated=True)
    shell = muster.submit_note("shell", action="note_shell", seconds=300, children=1)
    for label in ("once", "again", "shell"):
        muster.wait_for_start(label)
    muster.start_worker("w2", concurrency=3)

    w1.kill_tree()
    killed_at = time.time()
    muster.open_gate("again")
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
    assert noticed_seconds < 30
    muster.check_accounts()


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["embedded"], indirect=True)  # what ends them is the kernel
def test_actions_end_with_their_worker_and_before_a_second_attempt(
    install: Callable[..., Any],
) -> None:
    """Only the first process is killed: its pool children must not go on without it."""
    muster = install()
    muster.start_executor()
    w1 = muster.start_worker("w1")
    muster.ready()
    id = muster.submit_note("python", action="note_again", is_gated=True)
    shell = muster.submit_note("shell", action="note_shell", seconds=300, children=1)
    first = muster.wait_for_start("python")
    command = psutil.Process(muster.wait_for_start("shell").pid)
    children = psutil.Process(w1.pid).children(recursive=True)
    assert first.pid in [child.pid for child in children]

    w1.kill()
    muster.wait_for(
        lambda: not any(map(servers.is_alive, [*children, command])),
        "processes outlive their worker",
    )
    muster.start_worker("w1")
    muster.open_gate("python")
    rows = muster.wait_for_ends([id, shell])

    assert [(row.status, row.attempt) for row in rows] == [("completed", 2), ("abandoned", 1)]
    notes = [(note.event, note.attempt) for note in muster.journal.notes(label="python")]
    assert notes == [("start", 1), ("start", 2), ("end", 2)]
    assert muster.journal.starts("python")[1].pid != first.pid
    muster.wait_for(lambda: not muster.processes_of(shell), "its children live on")
    muster.check_accounts()
