"""Where executions go: by label, away from what is lost, drained or replaced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.scenarios.installation import SOON_LOST, Installation, Service


def start_labelled(muster: Installation, name: str, label: str) -> Service:
    arguments = ["--name", name, "--concurrency", "2", "--label", label]
    return muster.start(name, "manage.py", "worker", *arguments)


@pytest.mark.slow
def test_unclaimed_work_of_a_killed_worker_runs_elsewhere_long_before_its_ttl(
    install: Callable[..., Any], measured: Callable[[str, float], None]
) -> None:
    muster: Installation = install(**SOON_LOST)
    muster.start_executor()
    w1 = muster.start_worker("w1")
    muster.start_worker("w2")
    muster.ready()
    muster.client.call("order", verb="cordon", worker="w2")
    muster.wait_until_all_goes_to("w1")
    running = muster.submit_note("running", seconds=300)
    muster.wait_for_start("running")
    w1.kill_tree()
    waiting = muster.submit_note("waiting")
    muster.wait_for_status(waiting, "scheduled")
    muster.client.call("order", verb="uncordon", worker="w2")
    last_heartbeat_at = muster.worker("w1").heartbeat_at

    row = muster.wait_for_end(waiting)

    assert (row.status, row.attempt, row.retry_count) == ("completed", 2, 0)
    assert row.worker_id == muster.worker("w2").id
    assert muster.story(waiting) == ["schedule", "give_back", "schedule", "claim", "complete"]
    seconds = (row.ended_at - last_heartbeat_at).total_seconds()
    measured("last heartbeat (window 4 s) to the end elsewhere of what was unclaimed", seconds)
    assert 4 < seconds < 28, "its TTL is 30 s"
    lost = muster.wait_for_end(running)
    assert (lost.status, lost.reason) == ("abandoned", "worker_lost")
    assert [note.attempt for note in muster.journal.starts("waiting")] == [2]
    muster.check_accounts()


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["servers"], indirect=True)
def test_new_life_of_a_worker_settles_what_the_last_one_left_at_once(
    install: Callable[..., Any], measured: Callable[[str, float], None]
) -> None:
    # nobody could tell by its silence for a minute that it is gone
    muster: Installation = install(staleness_multiplier=120, worker_queue_ttl_ms=70_000)
    muster.start_executor()
    first = muster.start_worker("w1", concurrency=1)
    muster.ready()
    long = {"label": "running", "seconds": 300}
    running, waiting = muster.submit_notes(long, {"label": "waiting"})
    muster.wait_for_start("running")
    muster.wait_for_status(waiting, "scheduled")

    first.kill_tree()
    muster.start_worker("w1", concurrency=1)
    lost, ended = muster.wait_for_ends([running, waiting])

    registered_at = muster.worker("w1").registered_at
    measured(
        "registration of a new life to abandoned",
        (lost.ended_at - registered_at).total_seconds(),
    )
    assert (lost.status, lost.reason) == ("abandoned", "worker_lost")
    assert (lost.ended_at - registered_at).total_seconds() < 30
    assert (ended.status, ended.retry_count) == ("completed", 0)
    assert len(muster.journal.starts("waiting")) == 1
    assert muster.changes_of("w1") == ["registered", "lost", "registered"]
    muster.check_accounts()


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["servers"], indirect=True)
def test_worker_is_chosen_by_label_drained_by_order_and_retired(
    install: Callable[..., Any], measured: Callable[[str, float], None]
) -> None:
    muster: Installation = install(shutdown_timeout_seconds=1)
    muster.start_executor()
    here = start_labelled(muster, "here", "zone=a")
    start_labelled(muster, "there", "zone=b")
    muster.ready()
    ids = {name: muster.worker(name).id for name in ("here", "there")}
    asked = [muster.submit_note(f"b {n}", worker_selector={"zone": "b"}) for n in range(3)]
    assert {row.worker_id for row in muster.wait_for_ends(asked)} == {ids["there"]}
    refused = muster.wait_for_end(muster.submit_note("c", worker_selector={"zone": "c"}))
    assert refused.result["message"] == (
        "no workers available: none with the runtime python has the labels zone=c "
        "(there are: zone=a, zone=b)"
    )

    # longer than a worker that is told to stop would wait, if this were no drain
    zone_a = {"worker_selector": {"zone": "a"}}
    long = muster.submit_note("long", seconds=2, is_gated=True, **zone_a)
    muster.wait_for_start("long")
    muster.client.call("order", verb="drain", worker="here")
    muster.wait_until_all_goes_to("there")
    anywhere = muster.wait_for_ends([muster.submit_note(f"n {n}") for n in range(4)])
    assert {row.worker_id for row in anywhere} == {ids["there"]}
    muster.open_gate("long")
    row = muster.wait_for_end(long)
    assert (row.status, row.attempt) == ("completed", 1)
    assert here.exit_status() == 0
    gone = muster.worker("here")
    assert (gone.status, gone.cordoned) == ("inactive", True)
    measured(
        "end of a drained worker's last action to its exit",
        (gone.gone_at - row.ended_at).total_seconds(),
    )

    muster.retire("here")
    queue = f"scenario.worker.{ids['here']}.executions"
    assert muster.client.call("queue_length", name=queue) is None
    changes = muster.changes_of("here")
    assert changes == ["registered", "cordoned", "draining", "left", "retired"]
    events = muster.client.call("worker_events", worker="here")
    assert {event.actor for event in events} == {"here", "scenario"}
    muster.check_accounts()
