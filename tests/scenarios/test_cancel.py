"""Cancel: before the start it never runs, after it everything of it ends."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import psutil
import pytest

from tests.scenarios.installation import ClientError, Installation


def test_cancelled_before_its_claim_never_runs(install: Callable[..., Any]) -> None:
    muster: Installation = install()
    muster.start_executor()
    muster.start_worker("w1", concurrency=1)
    muster.ready()
    first = muster.submit_note("first", seconds=1)
    muster.wait_for_start("first")
    second = muster.submit_note("second")
    muster.wait_for_status(second, "scheduled")
    last = muster.submit_note("last")

    assert muster.cancel(second) == "cancelled"
    rows = muster.wait_for_ends([first, second, last])

    assert [row.status for row in rows] == ["completed", "cancelled", "completed"]
    assert (rows[1].reason, rows[1].started_at) == ("cancelled", None)
    assert rows[1].result["failed_by"] == "scenario"
    assert muster.story(second) == ["schedule", "cancel"]
    assert [note.label for note in muster.journal.starts()] == ["first", "last"]
    with pytest.raises(ClientError, match="AlreadyOver"):
        muster.cancel(second)
    muster.check_accounts()


@pytest.mark.parametrize("action", ["note_shell", "note"])
def test_cancelled_while_it_runs_all_that_it_started_ends(
    shared: Installation, action: str, measured: Callable[[str, float], None]
) -> None:
    label = f"cancelled {action}"
    id = shared.submit_note(label, action=action, seconds=30, children=2)
    shared.wait_for(lambda: len(shared.processes_of(id)) >= 4, "its children did not start")
    shared.wait_for_status(id, "running")
    pid = shared.wait_for_start(label).pid

    began = time.monotonic()
    assert shared.cancel(id) == "canceling"
    row = shared.wait_for_end(id)

    measured(f"cancel of a running {action} to cancelled", time.monotonic() - began)
    assert (row.status, row.reason) == ("cancelled", "cancelled_running")
    shared.wait_for(lambda: not shared.processes_of(id), "its children live on", within_seconds=3)
    if action == "note_shell":  # Python runs in a pool child, which is not killed for it
        shared.wait_for(lambda: not _exists(pid), "its process lives on", within_seconds=3)
    assert shared.journal.ends(label) == []
    assert shared.story(id) == ["schedule", "claim", "request_cancel", "confirm_cancel"]
    assert shared.wait_for_end(shared.submit("core.noop")).status == "completed"
    shared.check_accounts()


def _exists(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def test_python_action_in_a_thread_is_cancelled(install: Callable[..., Any]) -> None:
    muster: Installation = install()
    muster.start_executor()
    muster.start_worker("w1", pool="threads")
    muster.ready()
    id = muster.submit_note("thread", seconds=30, busy=True)
    muster.wait_for_start("thread")

    assert muster.cancel(id) == "canceling"
    row = muster.wait_for_end(id)

    assert (row.status, row.reason) == ("cancelled", "cancelled_running")
    assert muster.journal.ends("thread") == []
    assert muster.wait_for_end(muster.submit("core.noop")).status == "completed"
    muster.check_accounts()
