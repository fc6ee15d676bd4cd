"""What somebody deletes at the broker is back by itself, and a worker that cannot be reached is
given nothing. What never began runs later or elsewhere, although it has one attempt only."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from uuid import UUID

import pytest

from orchestrator.drills.drill.relay import Relay
from tests import servers
from tests.scenarios.installation import QUICK, Installation

pytestmark = [
    pytest.mark.slow,
    pytest.mark.parametrize("backend", ["servers"], indirect=True),
]

NUMBER = 30
WORKERS = ("w1", "w2")
BEAT_SECONDS = 4
LONGER_THAN_A_PUBLISH_SECONDS = QUICK["publish_timeout_seconds"] + 1.5


@pytest.fixture
def muster(enduring: Installation) -> Installation:
    return enduring


def _submit_some(muster: Installation, number: int = NUMBER) -> list[UUID]:
    return [muster.submit_note(f"n {n}", seconds=0.05) for n in range(number)]


def _assert_each_ran_once(muster: Installation, ids: Sequence[UUID]) -> None:
    rows = muster.wait_for_ends(ids, within_seconds=100)
    assert {(row.status, row.retry_count) for row in rows} == {("completed", 0)}
    assert muster.dlq_entries() == []
    muster.check_each_started_once(ids)
    muster.check_lives()
    muster.check_accounts()


# --- deleted -------------------------------------------------------------------------------------


def delete_exchange(muster: Installation) -> None:
    muster.client.call("delete_exchange", name="scenario.executions")


def delete_bindings(muster: Installation) -> None:
    ids = [muster.worker(name).id for name in WORKERS]
    muster.client.call("unbind_all", worker_ids=ids)


def delete_worker_queues(muster: Installation) -> None:
    for name in WORKERS:
        muster.client.call("delete_worker_queues", id=muster.worker(name).id)


def delete_everything(muster: Installation) -> None:
    ids = [muster.worker(name).id for name in WORKERS]
    muster.client.call("delete_everything", worker_ids=ids)


def recreate_virtual_host(muster: Installation) -> None:
    rabbit = muster.backend.rabbit
    assert rabbit is not None
    name = urlsplit(muster.environment["BROKER_URL"]).path.removeprefix("/")
    rabbit.control("delete_vhost", name)
    muster.backend.make_virtual_hosts(name)


@pytest.mark.parametrize(
    "delete",
    [
        delete_exchange,
        delete_bindings,
        delete_worker_queues,
        delete_everything,
        recreate_virtual_host,
    ],
)
def test_what_is_submitted_around_a_deletion_runs_once(
    muster: Installation, delete: Callable[[Installation], None]
) -> None:
    before = _submit_some(muster, 10)
    delete(muster)
    after = _submit_some(muster)

    _assert_each_ran_once(muster, [*before, *after])


@pytest.mark.parametrize(
    "delete", [delete_exchange, delete_bindings, delete_worker_queues, delete_everything]
)
def test_what_was_deleted_is_whole_again_without_any_message(
    muster: Installation,
    delete: Callable[[Installation], None],
    measured: Callable[[str, float], None],
) -> None:
    ids = [muster.worker(name).id for name in WORKERS]
    delete(muster)
    began = time.monotonic()

    muster.wait_for(
        lambda: muster.client.call("is_whole", worker_ids=ids), "the topology is not whole"
    )
    measured(f"{delete.__name__}, to whole again without a message", time.monotonic() - began)
    muster.wait_until_active(*WORKERS)
    muster.wait_for(lambda: set(_consumers(muster, ids)) == {1}, "a queue has no consumer")
    _assert_each_ran_once(muster, _submit_some(muster))


def _consumers(muster: Installation, worker_ids: Sequence[int]) -> list[int]:
    counts: list[int] = muster.client.call("consumers", worker_ids=worker_ids)
    return counts


# --- cut off, frozen, alarmed --------------------------------------------------------------------


@contextlib.contextmanager
def _relay_to(muster: Installation) -> Iterator[tuple[Relay, str]]:
    """A relay to the broker, and the URL that goes through it."""
    url = urlsplit(muster.environment["BROKER_URL"])
    with Relay(str(url.hostname), int(url.port or 0)) as relay:
        through = url._replace(netloc=f"guest:guest@127.0.0.1:{relay.port}")
        yield relay, urlunsplit(through)


def test_worker_cut_off_from_the_broker_alone_is_given_nothing_and_comes_back(
    install: Callable[..., Any], measured: Callable[[str, float], None]
) -> None:
    muster: Installation = install(heartbeat_interval_seconds=BEAT_SECONDS, staleness_multiplier=5)
    muster.start_executor()
    with _relay_to(muster) as (relay, url):
        muster.start_worker("w1", concurrency=2, BROKER_URL=url)
        muster.start_worker("w2", concurrency=2)
        muster.ready()

        relay.cut()
        cut_at = time.time()
        ids = _submit_some(muster)
        unfit = muster.wait_for(lambda: _unfit_for_the_broker(muster), "it says nothing")
        unfit_seconds = unfit.at.timestamp() - cut_at
        measured("cut off from the broker, to unfit (heartbeats of 4 s)", unfit_seconds)
        assert unfit_seconds < 2 * BEAT_SECONDS, "with its next heartbeat"
        assert "no connection to the broker since" in unfit.reason
        _assert_each_ran_once(muster, ids)

        relay.mend()
        mended_at = time.monotonic()
        muster.wait_until_active("w1")
        measured("its way to the broker is back, to fit", time.monotonic() - mended_at)
        pinned = muster.submit_note("pinned", worker_id=muster.worker("w1").id)
        assert muster.wait_for_end(pinned).status == "completed"
        muster.check_lives()


def test_end_of_what_was_being_handed_to_a_process_counts_though_the_connection_is_lost(
    install: Callable[..., Any],
) -> None:
    """The process has not accepted it when the consumer closes, and the pool is asked to forget it:
    it runs, and its slot is free afterwards."""
    muster: Installation = install()
    muster.start_executor()
    w1 = muster.start_worker("w1", concurrency=1, pool="prefork")
    muster.ready()

    with w1.pool_processes_stopped():
        id = muster.submit_note("handed over")
        muster.wait_for_status(id, "running")
        time.sleep(1)  # for its job to be sent
        muster.backend.close_connections(muster.broker_url)
        muster.wait_for(lambda: "Connection to broker lost" in w1.log(), "it did not notice")
        time.sleep(1)  # for its consumer to close

    assert muster.wait_for_end(id).status == "completed"
    assert muster.story(id) == ["schedule", "claim", "complete"]
    _assert_each_ran_once(muster, [id, muster.submit_note("next")])


def _unfit_for_the_broker(muster: Installation) -> Any:
    """The moment at which w1 has said so first, if it has."""
    events = muster.client.call("worker_events", worker="w1")
    said = (event for event in events if event.kind == "unhealthy" and "broker" in event.reason)
    return next(said, None)


def test_broker_that_is_frozen_loses_nothing_and_fails_nothing(muster: Installation) -> None:
    rabbit = muster.backend.rabbit
    assert rabbit is not None
    ids = _submit_some(muster, 10)
    rabbit.pause()
    ids += _submit_some(muster, 10)
    _wait_until_noticed(muster)
    _for_seconds(LONGER_THAN_A_PUBLISH_SECONDS)
    ids += _submit_some(muster, 10)
    rabbit.resume()
    muster.wait_until_active(*WORKERS)
    _assert_each_ran_once(muster, ids)


def test_memory_alarm_loses_nothing_and_fails_nothing(muster: Installation) -> None:
    rabbit = muster.backend.rabbit
    assert rabbit is not None
    rabbit.control("set_vm_memory_high_watermark", "0.00001")
    try:
        ids = _submit_some(muster)
        _for_seconds(LONGER_THAN_A_PUBLISH_SECONDS)
    finally:
        rabbit.control("set_vm_memory_high_watermark", "absolute", "1GB")
    _assert_each_ran_once(muster, ids)


def _wait_until_noticed(muster: Installation) -> None:
    muster.wait_for(
        lambda: all("broker" in muster.worker(name).failed_checks for name in WORKERS),
        "nobody noticed",
    )


def _for_seconds(seconds: float) -> None:
    """A fault takes its time: there is no condition to wait for."""
    threading.Event().wait(seconds)


def test_broker_that_is_down_for_long_fails_nothing_that_was_accepted(
    muster: Installation, measured: Callable[[str, float], None]
) -> None:
    rabbit = muster.backend.rabbit
    assert rabbit is not None
    ids = _submit_some(muster, 10)
    rabbit.kill()
    _wait_until_noticed(muster)
    ids += _submit_some(muster, 20)
    rabbit.start()
    back_at = time.monotonic()
    muster.wait_until_active(*WORKERS)
    measured("broker back, to all workers fit", time.monotonic() - back_at)
    _assert_each_ran_once(muster, ids)
    assert servers.is_listening(rabbit.port)
