"""The broker and the database stop, and start again."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

import httpx
import pytest

from tests import servers
from tests.scenarios.installation import SOON_LOST, Installation, Service
from workers.departure import EXIT_LOST

pytestmark = [
    pytest.mark.slow,
    pytest.mark.parametrize("backend", ["servers"], indirect=True),
]

AnyServer = TypeVar("AnyServer", bound=servers.Server)

OUTAGE_SECONDS = 4

SHARED = {"staleness_multiplier": 60}
"""Nobody is missed while the database starts again."""

STORY = ("schedule", "claim", "complete")


def _server(server: AnyServer | None) -> AnyServer:
    assert server is not None
    return server


def _assert_each_ran_once(muster: Installation, ids: Sequence[UUID]) -> None:
    rows = muster.wait_for_ends(ids, within_seconds=100)
    assert {(row.status, row.retry_count) for row in rows} == {("completed", 0)}
    # what nobody claimed in time may have gone to another worker, uncounted
    assert {tuple(muster.story(id)[-3:]) for id in ids} == {STORY}
    assert muster.dlq_entries() == []
    muster.check_each_started_once(ids)
    muster.check_lives()
    muster.check_accounts()


def _submit_and_wait_until_all_slots_run(muster: Installation, label: str) -> list[UUID]:
    """More than there are slots."""
    ids = [muster.submit_note(label, seconds=1) for _ in range(14)]
    muster.wait_for(lambda: len(muster.journal.starts(label)) >= 4, "nothing runs")
    return ids


def test_what_is_submitted_while_the_broker_is_down_runs_when_it_is_back(
    enduring: Installation, measured: Callable[[str, float], None]
) -> None:
    rabbit = _server(enduring.backend.rabbit)
    enduring.wait_for_end(enduring.submit_note("before"))

    rabbit.kill()
    seconds = []
    ids = []
    for number in range(10):
        began = time.monotonic()
        ids.append(enduring.submit_note(f"down {number}"))
        seconds.append(time.monotonic() - began)
    rabbit.start()
    back_at = time.monotonic()

    _assert_each_ran_once(enduring, ids)
    measured("broker back to all 10 over", time.monotonic() - back_at)
    measured("accepting one with the broker down, slowest of 10", max(seconds))
    assert min(seconds) < 1


def test_broker_restarted_under_running_executions_loses_none_and_runs_none_twice(
    enduring: Installation,
) -> None:
    ids = _submit_and_wait_until_all_slots_run(enduring, "broker")

    _server(enduring.backend.rabbit).kill()
    _server(enduring.backend.rabbit).start()

    _assert_each_ran_once(enduring, ids)


def test_database_restarted_under_running_executions_loses_none_and_runs_none_twice(
    enduring: Installation,
) -> None:
    ids = _submit_and_wait_until_all_slots_run(enduring, "database")

    # not killed: these servers sync nothing to disk, for speed
    _server(enduring.backend.postgres).stop()
    _server(enduring.backend.postgres).start()

    _assert_each_ran_once(enduring, ids)


def test_outage_of_the_database_is_a_few_lines_without_stacks(
    install: Callable[..., Any], measured: Callable[[str, float], None]
) -> None:
    muster: Installation = install(heartbeat_interval_seconds=5, staleness_multiplier=6)
    postgres = _server(muster.backend.postgres)
    services = [muster.start_executor(), muster.start_worker("w1"), muster.start_beat()]
    muster.ready()
    id = muster.submit_note("ends meanwhile", seconds=3)
    muster.wait_for_start("ends meanwhile")
    lengths = [len(service.log()) for service in services]

    postgres.stop()
    time.sleep(OUTAGE_SECONDS)
    postgres.start()

    assert muster.wait_for_end(id).status == "completed"
    for service, length in zip(services, lengths, strict=True):
        muster.wait_for(
            partial(_says, service, "database answers again"),
            f"{service.name} does not say that it is over",
        )
        text = service.log()[length:]
        measured(f"characters that the {service.name} logged of the outage", len(text))
        assert "Traceback" not in text
        assert text.count("database fails, trying again") == 1


def test_worker_that_gives_up_in_an_outage_names_the_ends_that_it_knows(
    install: Callable[..., Any],
) -> None:
    muster: Installation = install(heartbeat_interval_seconds=1, staleness_multiplier=8)
    postgres = _server(muster.backend.postgres)
    muster.start_executor()
    worker = muster.start_worker("w1")
    muster.ready()
    over = muster.submit_note("over", seconds=2)
    running = muster.submit_note("running", seconds=300)
    for label in ("over", "running"):
        muster.wait_for_start(label)

    postgres.stop()
    assert worker.exit_status(within_seconds=60) == EXIT_LOST
    lines = worker.log().splitlines()
    postgres.start()

    (gives_up,) = (number for number, line in enumerate(lines) if "critical" in line)
    (ended,) = (line for line in lines[gives_up:] if "an end could not be stored" in line)
    assert str(over) in ended
    assert "succeeded" in ended
    (killed,) = (line for line in lines[gives_up:] if "its worker gives up" in line)
    assert str(running) in killed


def test_worker_survives_a_database_that_stands_still_twice(install: Callable[..., Any]) -> None:
    """Each time for less than a worker may be silent, here for 8 s, and with a moment between that
    is shorter than the interval of its heartbeats."""
    muster: Installation = install(heartbeat_interval_seconds=2, staleness_multiplier=5)
    postgres = _server(muster.backend.postgres)
    muster.start_executor()
    muster.start_worker("w1")
    muster.ready()
    muster.wait_for_end(muster.submit_note("before"))

    # nothing runs: it looks for no cancels, and so it is a heartbeat that waits for an answer
    for still_seconds, going_seconds in ((5.5, 1.7), (5.5, 0)):
        postgres.pause()
        time.sleep(still_seconds)
        postgres.resume()
        time.sleep(going_seconds)

    _assert_each_ran_once(muster, [muster.submit_note("after")])


def test_executor_killed_between_commit_and_publish_leaves_nothing_behind(
    install: Callable[..., Any],
) -> None:
    """The broker is frozen, so that the executor has committed and waits for its confirm."""
    muster: Installation = install(publish_timeout_seconds=10, worker_queue_ttl_ms=20_000)
    rabbit = _server(muster.backend.rabbit)
    first = muster.start_executor()
    muster.start_worker("w1", concurrency=4)
    muster.ready()
    muster.wait_for_end(muster.submit_note("before"))

    rabbit.pause()
    # in one request: the executor takes them together, and comes no further
    ids = muster.submit_notes(*({"label": f"n {number}"} for number in range(4)))
    muster.wait_for(
        lambda: all(muster.execution(id).status == "scheduled" for id in ids), "not committed"
    )
    first.kill()
    rabbit.kill()  # with it goes what the executor had written to its socket
    rabbit.start()
    muster.start_executor("executor2")
    rows = muster.wait_for_ends(ids, within_seconds=100)

    # the worker may have been unfit for the broker meanwhile: then it went back, uncounted
    assert [(row.status, row.retry_count) for row in rows] == [("completed", 0)] * 4
    muster.check_each_started_once(ids)
    assert {tuple(muster.story(id)[-3:]) for id in ids} == {STORY}
    muster.check_accounts()


def test_what_is_overdue_ends_in_time_with_the_broker_down_and_beat_never_started(
    install: Callable[..., Any], measured: Callable[[str, float], None]
) -> None:
    muster: Installation = install(**SOON_LOST)
    rabbit = _server(muster.backend.rabbit)
    muster.start_executor()
    w1 = muster.start_worker("w1")
    muster.ready()
    running = muster.submit_note("running", seconds=300)
    muster.wait_for_start("running")

    rabbit.kill()
    w1.kill_tree()
    waiting = muster.submit_note("never", deadline_seconds=3)
    rows = muster.wait_for_ends([running, waiting])

    assert [(row.status, row.reason) for row in rows] == [
        ("abandoned", "worker_lost"),
        ("failed", "deadline_passed"),
    ]
    late_seconds = (rows[1].ended_at - rows[1].deadline_at).total_seconds()
    measured("a deadline to its end, broker down, no beat", late_seconds)
    assert 0 <= late_seconds < 20
    assert rows[1].result["failed_by"] == "execution_timeout_monitor"
    muster.check_accounts()


def test_cancel_whose_message_is_lost_is_found_by_the_heartbeat(
    enduring: Installation, measured: Callable[[str, float], None]
) -> None:
    rabbit = _server(enduring.backend.rabbit)
    id = enduring.submit_note("shell", action="note_shell", seconds=300, children=1)
    enduring.wait_for(lambda: len(enduring.processes_of(id)) >= 5, "its children did not start")

    rabbit.kill()
    began = time.monotonic()
    assert enduring.cancel(id) == "canceling"
    row = enduring.wait_for_end(id)

    measured("cancel with the broker down, to cancelled", time.monotonic() - began)
    assert row.status == "cancelled"
    # Celery's loop reads how a child ended, and waits for the broker: the sweep may be first
    assert row.reason in ("cancelled_running", "cancel_unconfirmed")
    enduring.wait_for(lambda: not enduring.processes_of(id), "its children live on")
    assert enduring.story(id) == ["schedule", "claim", "request_cancel", "confirm_cancel"]
    enduring.check_accounts()


def test_services_that_start_without_a_database_wait_for_it(install: Callable[..., Any]) -> None:
    muster: Installation = install()
    postgres = _server(muster.backend.postgres)
    postgres.stop()
    services = [muster.start_worker("w1"), muster.start_beat(), muster.start_executor()]
    muster.wait_for(
        lambda: all("database not reachable" in service.log() for service in services[:2]),
        "they do not say what they wait for",
    )
    postgres.start()
    muster.ready()

    assert muster.wait_for_end(muster.submit_note("first")).status == "completed"
    assert [service.process.poll() for service in services] == [None] * 3


def test_services_that_start_without_a_broker_wait_for_it(install: Callable[..., Any]) -> None:
    muster: Installation = install()
    rabbit = _server(muster.backend.rabbit)
    rabbit.stop()
    services = [muster.start_worker("w1"), muster.start_executor()]
    muster.wait_for(
        lambda: all("broker not reachable, trying again" in each.log() for each in services),
        "they do not say what they wait for",
    )
    rabbit.start()
    muster.ready()

    assert muster.wait_for_end(muster.submit_note("first")).status == "completed"
    assert [service.process.poll() for service in services] == [None] * 2


def test_limit_holds_over_all_api_processes_and_nobody_waits_for_redis(
    install: Callable[..., Any], measured: Callable[[str, float], None]
) -> None:
    muster: Installation = install(requests_per_minute=100)
    redis = _server(muster.backend.redis)
    urls = [muster.serve(), muster.serve()]
    token = muster.token("redis")
    strange = {"Authorization": f"Bearer {muster.token('limited')}"}
    muster.ready()
    _wait_for_the_beginning_of_a_minute()
    with httpx.Client(headers=strange, timeout=60) as client:
        statuses = Counter(
            client.get(f"{urls[n % 2]}/api/v1/workers").status_code for n in range(120)
        )
    assert statuses == {200: 100, 429: 20}

    slowest = 0.0
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=urls[0], headers=headers, timeout=60) as api:
        usual = _seconds_of_four_answers(api)
        for how in (redis.pause, redis.stop, redis.kill):
            how()
            slowest = max(slowest, _seconds_of_four_answers(api))
            if how == redis.pause:
                redis.resume()
            redis.start()

    measured("four answers of the API while Redis is gone, at most", slowest)
    assert slowest < 2 + 10 * usual
    assert len(muster.executions()) == 4


def _wait_for_the_beginning_of_a_minute() -> None:
    """Unless there is enough left of this one: windows begin with minutes."""
    left_seconds = 60 - time.time() % 60
    if left_seconds < 25:
        time.sleep(left_seconds)


def _seconds_of_four_answers(api: httpx.Client) -> float:
    began = time.monotonic()
    answers = [
        api.post("/api/v1/executions", json={"action_ref": "core.noop"}),
        api.get("/api/v1/executions"),
        api.get("/api/v1/health/ready"),
        api.get("/admin/login/"),
    ]
    assert [answer.status_code for answer in answers] == [201, 200, 200, 200]
    return time.monotonic() - began


def _says(service: Service, text: str) -> bool:
    return text in service.log()
