"""Cancel: before the start it never runs, after it everything of it ends."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import psutil
import pytest

from tests.scenarios.installation import ClientError, Installation


def test_cancelled_before_its_claim_never_runs(shared: Installation) -> None:
    here = {"worker_id": shared.worker("w1").id}
    both = [{"label": label, "is_gated": True, **here} for label in ("one", "other")]
    *running, waiting = shared.submit_notes(*both, {"label": "waiting", **here})
    for label in ("one", "other"):
        shared.wait_for_start(label)
    shared.wait_for_status(waiting, "scheduled")
    last = shared.submit_note("last", **here)

    assert shared.cancel(waiting) == "cancelled"
    for label in ("one", "other"):
        shared.open_gate(label)
    rows = shared.wait_for_ends([*running, last])

    assert {row.status for row in rows} == {"completed"}
    cancelled = shared.execution(waiting)
    assert (cancelled.status, cancelled.reason) == ("cancelled", "cancelled")
    assert (cancelled.started_at, cancelled.result["failed_by"]) == (None, "scenario")
    assert shared.story(waiting) == ["schedule", "cancel"]
    assert shared.journal.starts("waiting") == []
    with pytest.raises(ClientError, match="AlreadyOver"):
        shared.cancel(waiting)
    shared.check_accounts()


@pytest.mark.parametrize(
    ("backend", "action"),
    [("servers", "note_shell"), ("embedded", "note")],
    indirect=["backend"],
)
def test_cancelled_while_it_runs_all_that_it_started_ends(
    shared: Installation, action: str, measured: Callable[[str, float], None]
) -> None:
    label = f"cancelled {action}"
    id = shared.submit_note(label, action=action, seconds=300, children=2)
    shared.wait_for(lambda: len(shared.processes_of(id)) >= 4, "its children did not start")
    shared.wait_for_status(id, "running")
    pid = shared.wait_for_start(label).pid

    began = time.monotonic()
    assert shared.cancel(id) == "canceling"
    row = shared.wait_for_end(id)

    measured(f"cancel of a running {action} to cancelled", time.monotonic() - began)
    assert (row.status, row.reason) == ("cancelled", "cancelled_running")
    shared.wait_for(lambda: not shared.processes_of(id), "its children live on")
    shared.wait_for(lambda: not _exists(pid), "its process lives on")
    assert shared.journal.ends(label) == []
    assert shared.story(id) == ["schedule", "claim", "request_cancel", "confirm_cancel"]
    assert shared.wait_for_end(shared.submit("core.noop")).status == "completed"
    shared.check_accounts()


def _exists(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


@pytest.mark.parametrize("backend", ["embedded"], indirect=True)
def test_python_action_in_a_thread_is_cancelled(install: Callable[..., Any]) -> None:
    muster: Installation = install()
    muster.start_executor()
    muster.start_worker("w1", pool="threads")
    muster.ready()
    id = muster.submit_note("thread", seconds=300, busy=True)
    muster.wait_for_start("thread")

    assert muster.cancel(id) == "canceling"
    row = muster.wait_for_end(id)

    assert (row.status, row.reason) == ("cancelled", "cancelled_running")
    assert muster.journal.ends("thread") == []
    assert muster.wait_for_end(muster.submit("core.noop")).status == "completed"
    muster.check_accounts()
