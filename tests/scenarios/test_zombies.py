"""A worker that was frozen, given up, and comes back; and two processes of one name."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests import servers
from tests.scenarios.installation import SOON_LOST, START_SECONDS, Installation, Service

pytestmark = pytest.mark.slow

TWICE = ["schedule", "claim", "retry", "schedule", "claim", "complete"]
EXIT_LOST = 70


def _is_gone(service: Service) -> bool:
    return not any(map(servers.is_alive, service.seen))


def test_frozen_worker_that_comes_back_is_refused_and_ends_itself(
    install: Callable[..., Any], measured: Callable[[str, float], None]
) -> None:
    muster: Installation = install(**SOON_LOST)
    muster.start_executor()
    workers = {name: muster.start_worker(name, concurrency=3) for name in ("w1", "w2")}
    muster.ready()
    again = muster.submit_note("again", action="note_again", is_gated=True)
    muster.wait_for_start("again")
    lost_id = muster.execution(again).worker_id
    [lost_name] = [name for name in workers if muster.worker(name).id == lost_id]
    [other_name] = workers.keys() - {lost_name}
    w1, w2 = workers[lost_name], workers[other_name]
    shell = muster.submit_note(
        "shell", action="note_shell", seconds=300, children=1, worker_id=lost_id
    )
    once = muster.submit_note("once", is_gated=True, worker_id=lost_id)
    muster.wait_for_start("once")
    muster.wait_for(lambda: len(muster.processes_of(shell)) >= 5, "its children did not start")

    w1.pause_tree()
    muster.wait_for_status(once, "abandoned")
    muster.wait_for_start("again", attempt=2)
    abandoned = muster.execution(once)
    for label in ("again", "once"):  # each ends on w1 as soon as it goes on
        muster.open_gate(label)
    resumed_at = time.monotonic()
    w1.resume_tree()

    assert w1.exit_status() == EXIT_LOST
    measured("SIGCONT of a lost worker to its exit", time.monotonic() - resumed_at)
    muster.wait_for(lambda: _is_gone(w1), "its children live on")
    muster.wait_for(lambda: not muster.processes_of(shell), "its actions live on")
    rows = muster.wait_for_ends([once, again, shell])
    assert rows[0] == abandoned
    assert [(row.status, row.attempt) for row in rows] == [
        ("abandoned", 1),
        ("completed", 2),
        ("abandoned", 1),
    ]
    assert rows[1].worker_id == muster.worker(other_name).id
    assert muster.story(again) == TWICE
    assert (muster.worker(lost_name).status, muster.worker(lost_name).incarnation) == (
        "inactive",
        1,
    )
    assert w2.process.poll() is None
    muster.check_accounts()


# on servers the two compete for one queue
@pytest.mark.parametrize("backend", ["servers"], indirect=True)
def test_second_process_of_a_name_is_refused_unless_it_is_to_replace_the_first(
    install: Callable[..., Any],
) -> None:
    muster: Installation = install()
    muster.start_executor()
    first = muster.start_worker("w1")
    muster.ready()
    once = muster.submit_note("once", seconds=300)
    again = muster.submit_note("again", action="note_again", seconds=300)
    for label in ("once", "again"):
        muster.wait_for_start(label)
    first.tree()

    refused = muster.start_worker("w1", queues="default=1")
    queue = f"scenario.worker.{muster.worker('w1').id}.executions"
    celery = ("-m", "celery", "-A", "settings", "worker", "-Q", queue, "-c", "1")
    by_queue = muster.start("celery", *celery, **muster.login("worker"))
    for service in (refused, by_queue):
        assert service.exit_status() == 1
        assert f"Worker w1 runs already: host {socket.gethostname()}, pid {first.pid}" in (
            service.log()
        )
    assert muster.worker("w1").queues == {}, "the first serves what it served"
    assert muster.worker("w1").incarnation == 1

    second = muster.start_worker("w1", options=["--replace"])
    muster.wait_for(second.is_up, "it is not ready", within_seconds=START_SECONDS)
    assert muster.wait_for_start("again", attempt=2).pid in [one.pid for one in second.tree()]
    muster.cancel(again)
    rows = muster.wait_for_ends([once, again])

    assert first.exit_status() == EXIT_LOST
    muster.wait_for(lambda: _is_gone(first), "its children live on")
    assert [(row.status, row.attempt) for row in rows] == [("abandoned", 1), ("cancelled", 2)]
    # the second process kills those of the first, which may be quicker to say that one has died
    # than an executor to say that all of it has
    assert rows[0].reason in {"worker_lost", "process_lost"}
    assert [row.worker_incarnation for row in rows] == [1, 2]
    # it may wait for the second process, which is given work when it consumes
    story = [event for event in muster.story(again) if event != "wait"]
    assert story[:5] == TWICE[:5]
    worker = muster.worker("w1")
    assert (worker.status, worker.incarnation, worker.pid) == ("active", 2, second.pid)
    assert muster.wait_for_end(muster.submit("core.noop")).worker_incarnation == 2
    muster.check_accounts()
