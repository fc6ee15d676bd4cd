"""Queues with real processes: who serves them, limits with several executors, pause, retry lane."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.scenarios.installation import SOON_LOST, Installation


def make_queue(muster: Installation, name: str, **values: Any) -> None:
    muster.client.call("make_queue", name=name, **values)


@pytest.mark.slow
def test_two_queues_go_to_their_workers_within_their_limit_and_wait_while_paused(
    install: Callable[..., Any],
) -> None:
    muster: Installation = install()
    make_queue(muster, "orders", max_running=3, prefetch_buffer=2)
    make_queue(muster, "mail", action="scenario.note")
    muster.start_executor("e1")
    muster.start_executor("e2")
    muster.start_worker("w1", queues="orders,mail=1")
    muster.start_worker("w2", queues="orders")
    muster.start_worker("w3")
    muster.ready()
    ids = {name: muster.worker(name).id for name in ("w1", "w2", "w3")}

    orders = muster.submit_notes(*({"label": f"o{n}", "queue": "orders"} for n in range(40)))
    mail = muster.submit_notes(*({"label": f"m{n}", "queue": "mail"} for n in range(10)))
    others = muster.submit_notes(*({"label": f"x{n}"} for n in range(5)))
    ended = {
        name: muster.wait_for_ends(those)
        for name, those in (("orders", orders), ("mail", mail), ("others", others))
    }

    assert {row.status for rows in ended.values() for row in rows} == {"completed"}
    assert {row.worker_id for row in ended["orders"]} <= {ids["w1"], ids["w2"]}
    assert {row.worker_id for row in ended["mail"]} == {ids["w1"]}
    assert {row.worker_id for row in ended["others"]} == {ids["w3"]}
    assert muster.client.call("most_held", queue="orders") <= 3
    assert muster.client.call("most_held", queue="mail") == 1

    muster.client.call("order_queue", name="mail", verb="pause")
    paused = muster.submit_note("paused", queue="mail")
    after = muster.submit_note("after", queue="orders")
    muster.wait_for_end(after)
    assert muster.executions()[paused].status == "requested"
    muster.client.call("order_queue", name="mail", verb="resume")
    assert muster.wait_for_end(paused).status == "completed"
    muster.check_accounts()


@pytest.mark.slow
def test_work_of_a_killed_worker_is_retried_by_the_retry_lane_and_what_it_had_not_begun_is_not(
    install: Callable[..., Any],
) -> None:
    muster: Installation = install(**SOON_LOST)
    make_queue(muster, "orders", retry_limit=3)
    muster.start_executor()
    w1 = muster.start_worker("w1", concurrency=1, queues="orders")
    muster.start_worker("w2", concurrency=1, queues="orders:retry=1")
    muster.ready()
    running, ahead = muster.submit_notes(
        {"label": "running", "action": "note_again", "is_gated": True, "queue": "orders"},
        {"label": "ahead", "queue": "orders"},
    )
    muster.wait_for_start("running")
    muster.wait_for_status(ahead, "scheduled")

    w1.kill_tree()
    muster.wait_for_start("running", attempt=2)
    muster.open_gate("running")
    lost = muster.wait_for_end(running)

    assert (lost.status, lost.retry_count) == ("completed", 1)
    assert lost.worker_id == muster.worker("w2").id
    assert muster.executions()[ahead].status in ("requested", "scheduling", "scheduled")
    muster.start_worker("w1", concurrency=1, queues="orders")
    row = muster.wait_for_end(ahead)
    assert (row.status, row.retry_count, row.worker_id) == (
        "completed", 0, muster.worker("w1").id,
    )  # fmt: skip
    muster.check_accounts()
