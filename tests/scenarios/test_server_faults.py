"""The broker and the database stop, and start again."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

import httpx
import pytest

from tests import servers
from tests.scenarios.installation import Installation

pytestmark = [
    pytest.mark.slow,
    pytest.mark.parametrize("backend", ["servers"], indirect=True),
]

AnyServer = TypeVar("AnyServer", bound=servers.Server)

ASK_CACHE = """
import time, redis
from django.core.cache import cache
began = time.monotonic()
try: cache.get("x")
except redis.exceptions.TimeoutError: print(time.monotonic() - began)
"""

STORY = ["schedule", "claim", "complete"]


def _server(server: AnyServer | None) -> AnyServer:
    assert server is not None
    return server


def _labels(muster: Installation) -> list[str]:
    return sorted(note.label for note in muster.journal.starts())


def test_what_is_submitted_while_the_broker_is_down_runs_when_it_is_back(
    install: Callable[..., Any], measured: Callable[[str, float], None]
) -> None:
    muster: Installation = install()
    rabbit = _server(muster.backend.rabbit)
    muster.start_executor()
    muster.start_worker("w1", concurrency=4)
    muster.ready()
    before = muster.submit_note("before")
    muster.wait_for_end(before)

    rabbit.kill()
    slowest = 0.0
    ids = []
    for number in range(10):
        began = time.monotonic()
        ids.append(muster.submit_note(f"down {number}"))
        slowest = max(slowest, time.monotonic() - began)
    rabbit.start()
    back_at = time.monotonic()
    rows = muster.wait_for_ends(ids)

    measured("accepting one with the broker down, slowest of 10", slowest)
    measured("broker back to all 10 over", time.monotonic() - back_at)
    assert slowest < 1
    assert {row.status for row in rows} == {"completed"}
    assert _labels(muster) == sorted(["before", *(f"down {number}" for number in range(10))])
    assert muster.worker("w1").incarnation == 1
    muster.check_accounts()


def test_broker_restarted_under_running_executions_loses_none_and_runs_none_twice(
    install: Callable[..., Any],
) -> None:
    muster: Installation = install()
    rabbit = _server(muster.backend.rabbit)
    executor = muster.start_executor()
    workers = [muster.start_worker(name, concurrency=2) for name in ("w1", "w2")]
    muster.ready()
    ids = [muster.submit_note(f"n {number}", seconds=2) for number in range(14)]
    muster.wait_for(lambda: len(muster.journal.starts()) >= 4, "nothing runs")

    rabbit.kill()
    rabbit.start()
    rows = muster.wait_for_ends(ids, within_seconds=40)

    assert [row.status for row in rows] == ["completed"] * 14
    assert _labels(muster) == sorted(f"n {number}" for number in range(14))
    assert [service.process.poll() for service in (executor, *workers)] == [None] * 3
    assert muster.dlq_entries() == []
    muster.check_accounts()


def test_database_restarted_under_running_executions_loses_none_and_runs_none_twice(
    install: Callable[..., Any],
) -> None:
    muster: Installation = install()
    postgres = _server(muster.backend.postgres)
    executor = muster.start_executor()
    workers = [muster.start_worker(name, concurrency=2) for name in ("w1", "w2")]
    muster.ready()
    ids = [muster.submit_note(f"n {number}", seconds=1) for number in range(14)]
    muster.wait_for(lambda: len(muster.journal.starts()) >= 4, "nothing runs")

    postgres.stop()  # not killed: these servers sync nothing to disk, for speed
    postgres.start()
    rows = muster.wait_for_ends(ids, within_seconds=40)

    assert [row.status for row in rows] == ["completed"] * 14
    assert {tuple(muster.story(id)) for id in ids} == {tuple(STORY)}
    assert _labels(muster) == sorted(f"n {number}" for number in range(14))
    assert [service.process.poll() for service in (executor, *workers)] == [None] * 3
    muster.check_accounts()


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
    ids = [muster.submit_note(f"n {number}") for number in range(4)]
    muster.wait_for(
        lambda: all(muster.execution(id).status == "scheduled" for id in ids), "not committed"
    )
    first.kill()
    rabbit.kill()  # with it goes what the executor had written to its socket
    rabbit.start()
    muster.start_executor("executor2")
    rows = muster.wait_for_ends(ids, within_seconds=40)

    # the worker may have been unfit for the broker meanwhile: then it went back, uncounted
    assert [(row.status, row.retry_count) for row in rows] == [("completed", 0)] * 4
    assert _labels(muster) == ["before", *(f"n {number}" for number in range(4))]
    assert {tuple(muster.story(id)[-3:]) for id in ids} == {tuple(STORY)}
    muster.check_accounts()


def test_what_is_overdue_ends_in_time_with_the_broker_down_and_beat_never_started(
    install: Callable[..., Any], measured: Callable[[str, float], None]
) -> None:
    muster: Installation = install()
    rabbit = _server(muster.backend.rabbit)
    muster.start_executor()
    w1 = muster.start_worker("w1")
    muster.ready()
    running = muster.submit_note("running", seconds=30)
    muster.wait_for_start("running")

    rabbit.kill()
    w1.kill_tree()
    waiting = muster.submit_note("never", deadline_seconds=3)
    rows = muster.wait_for_ends([running, waiting], within_seconds=30)

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
    install: Callable[..., Any], measured: Callable[[str, float], None]
) -> None:
    muster: Installation = install()
    rabbit = _server(muster.backend.rabbit)
    muster.start_executor()
    muster.start_worker("w1")
    muster.ready()
    id = muster.submit_note("shell", action="note_shell", seconds=30, children=1)
    muster.wait_for(lambda: len(muster.processes_of(id)) >= 5, "its children did not start")

    rabbit.kill()
    began = time.monotonic()
    assert muster.cancel(id) == "canceling"
    row = muster.wait_for_end(id)

    measured("cancel with the broker down, to cancelled", time.monotonic() - began)
    assert row.status == "cancelled"
    # Celery's loop reads how a child ended, and waits for the broker: the sweep may be first
    assert row.reason in ("cancelled_running", "cancel_unconfirmed")
    assert not muster.processes_of(id)
    assert muster.story(id) == ["schedule", "claim", "request_cancel", "confirm_cancel"]
    muster.check_accounts()


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


def test_api_answers_as_before_while_redis_hangs_or_is_gone(
    install: Callable[..., Any], measured: Callable[[str, float], None]
) -> None:
    muster: Installation = install()
    redis = _server(muster.backend.redis)
    port = servers.free_port()
    muster.start_api(port)
    headers = {"Authorization": f"Bearer {muster.command('token', 'create', 'redis').strip()}"}
    slowest = cache_seconds = 0.0
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=20) as api:
        muster.wait_for(lambda: _is_ready(api), "the API does not answer")
        for how in (redis.pause, redis.stop, redis.kill):
            how()
            asked = {"action_ref": "core.noop"}
            began = time.monotonic()
            answers = [
                api.post("/api/v1/executions", json=asked),
                api.get("/api/v1/executions"),
                api.get("/api/v1/health/ready"),
                api.get("/admin/login/"),
            ]
            slowest = max(slowest, time.monotonic() - began)
            assert [answer.status_code for answer in answers] == [201, 200, 200, 200]
            if how == redis.pause:
                cache_seconds = float(muster.command("shell", "--verbosity", "0", "-c", ASK_CACHE))
                redis.resume()
            redis.start()

    measured("four answers of the API while Redis is gone, at most", slowest)
    assert slowest < 8
    assert cache_seconds < 5, "whoever asks the cache waits with it"
    assert len(muster.executions()) == 3


def _is_ready(api: httpx.Client) -> bool:
    try:
        return api.get("/api/v1/health/ready").status_code == 200
    except httpx.TransportError:
        return False
