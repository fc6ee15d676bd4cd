"""A second attempt begins when nothing of the first is left, whatever ails the worker."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.scenarios.installation import Installation, Service

# what it is about has nothing to do with servers
pytestmark = pytest.mark.parametrize("backend", ["embedded"], indirect=True)


@pytest.mark.slow
def test_first_attempt_ends_before_the_second_begins_when_only_its_worker_is_frozen(
    install: Callable[..., Any], measured: Callable[[str, float], None]
) -> None:
    """Its pool process and its commands go on: they would run beside the second attempt."""
    # its sentinel ends it half a heartbeat interval before others miss it
    muster: Installation = install(heartbeat_interval_seconds=2, staleness_multiplier=4)
    ticks = muster.directory / "ticks"
    muster.start_executor()
    w1 = muster.start_worker("w1", concurrency=2)
    muster.ready()
    python = muster.submit("drill.wait", {"seconds": 300, "journal": str(ticks)})
    shell = muster.submit_note("shell", action="note_shell", seconds=300, children=2)
    muster.wait_for_status(python, "running")
    muster.wait_for(lambda: len(muster.processes_of(shell)) >= 6, "its children did not start")
    muster.start_worker("w2", concurrency=2)
    muster.ready()

    w1.pause()
    muster.wait_for(lambda: 2 in spans(ticks), "there is no second attempt")
    muster.cancel(python)
    rows = muster.wait_for_ends([python, shell])

    last_of_first, first_of_second = spans(ticks)[1][1], spans(ticks)[2][0]
    overlap_seconds = last_of_first - first_of_second
    measured("overlap with a frozen worker (below 0: a gap)", overlap_seconds)
    assert overlap_seconds < 0
    assert [row.reason for row in rows] == ["cancelled_running", "worker_lost"]
    muster.wait_for(lambda: not muster.processes_of(shell), "its children live on")
    assert w1.exit_status() == -signal.SIGKILL


def test_installations_on_one_machine_leave_each_other_alone(install: Callable[..., Any]) -> None:
    """Both have a worker of id 1; when one of them begins a new life, the other goes on."""
    mine, other = install(), install()
    for muster in (mine, other):
        muster.start_executor()
        muster.start_worker("w1", concurrency=1)
    for muster in (mine, other):
        muster.ready()
    running = mine.submit_note("running", action="note_shell", is_gated=True)
    mine.wait_for_start("running")

    other.start_worker("w1", concurrency=1, options=["--replace"])
    other.wait_for(lambda: other.worker("w1").incarnation == 2, "there is no second life")
    other.wait_for(lambda: other.worker("w1").status == "active", "it does not work")

    assert mine.execution(running).status == "running"
    mine.open_gate("running")
    assert mine.wait_for_end(running).status == "completed"


def spans(ticks: Path) -> dict[int, tuple[float, float]]:
    """When each attempt was first and last heard of."""
    found: dict[int, tuple[float, float]] = {}
    for line in ticks.read_text().splitlines():
        tick = json.loads(line)
        first, _ = found.get(tick["attempt"], (tick["at"], 0.0))
        found[tick["attempt"]] = (first, tick["at"])
    return found


def test_worker_that_is_told_to_stop_now_gives_back_and_kills(
    install: Callable[..., Any], measured: Callable[[str, float], None]
) -> None:
    muster: Installation = install()
    muster.start_executor()
    w1 = muster.start_worker("w1", concurrency=1)
    muster.ready()
    long = {"label": "running", "action": "note_again", "seconds": 300}
    running, waiting = muster.submit_notes(long, {"label": "waiting"})
    muster.wait_for_start("running")
    muster.wait_for_status(waiting, "scheduled")
    muster.start_worker("w2", concurrency=2)
    muster.ready()

    measured("SIGQUIT of a worker to its exit", stop(w1, signal.SIGQUIT))

    row = muster.wait_for_end(waiting)
    assert (row.status, row.retry_count) == ("completed", 0)
    muster.wait_for_start("running", attempt=2)
    assert muster.worker("w1").status_reason == "stopped"
    muster.cancel(running)
    assert muster.wait_for_end(running).status == "cancelled"
    muster.check_accounts()


def stop(worker: Service, number: signal.Signals) -> float:
    """Seconds until it has exited, with 0."""
    began = time.monotonic()
    worker.signal(number)
    assert worker.exit_status() == 0
    return time.monotonic() - began
