"""Sensors, their services and the database die at random, and each number is one event.

`TEST_SENSOR_KILLS=500 TEST_SENSOR_UNTIL=100000` and `TEST_SENSOR_LINES=1000000` are the full sizes,
see CONTRIBUTING.md; the ordinary run does the same with fewer.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import psutil
import pytest

from tests.scenarios import counting
from tests.scenarios.installation import Installation, Service

KILLS = int(os.environ.get("TEST_SENSOR_KILLS", "8"))
UNTIL = int(os.environ.get("TEST_SENSOR_UNTIL", "4000"))
LINES = int(os.environ.get("TEST_SENSOR_LINES", "20000"))

LEASE_SECONDS = 3.0
MEMORY_LIMIT = 100 * 1024 * 1024
servers_only = pytest.mark.parametrize("backend", ["servers"], indirect=True)


def sensor_of(muster: Installation) -> Any:
    return muster.client.call("sensors")[counting.REF]


def wait_until_counted(muster: Installation, number: int, *, within_seconds: float = 90) -> None:
    muster.wait_for(
        lambda: counting.counted(muster) >= number,
        f"not {number:,} are counted",
        within_seconds=within_seconds,
    )


def is_beyond(muster: Installation, fence: int) -> bool:
    return bool(sensor_of(muster).fence > fence)


def wait_until_failed(muster: Installation, times: int) -> None:
    muster.wait_for(lambda: sensor_of(muster).restarts >= times, "it is not noticed")


@pytest.mark.slow
@pytest.mark.timeout(600 + 5 * KILLS)
def test_each_number_is_one_event_while_the_sensor_is_killed(
    install: Callable[..., Any], measured: Callable[[str, float], None]
) -> None:
    muster: Installation = install()
    counting.install(muster, until=UNTIL, pause_seconds=0.2)
    muster.start_sensor("s1")
    began = time.monotonic()
    chance = random.Random(7)
    for number in range(KILLS):
        wait_until_counted(muster, min(UNTIL, (number + 1) * UNTIL // (KILLS + 1)))
        muster.wait_for(partial(counting.programs, muster), "it is not started again")
        time.sleep(chance.random() * 0.05)
        for process in counting.programs(muster):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        wait_until_failed(muster, number + 1)
        if number % 3 == 2:
            # two times the service starts it itself, after 1 and 2 s; then the pause is short again
            muster.client.call("restart_sensor", ref=counting.REF)

    wait_until_counted(muster, UNTIL, within_seconds=600)
    measured(f"{UNTIL:,} numbers, killed {KILLS} times", time.monotonic() - began)
    counting.check(muster, UNTIL)
    assert sensor_of(muster).restarts == KILLS


@pytest.mark.slow
def test_each_number_is_one_event_while_the_pack_is_upgraded(install: Callable[..., Any]) -> None:
    muster: Installation = install()

    def install_version(version: int) -> None:
        # each leaves something to the next, however late that comes on a busy machine
        most = UNTIL * version // 3
        counting.install(muster, until=UNTIL, pause_seconds=0.8, version=version, most=most)

    install_version(1)
    muster.start_sensor("s1")
    for version in (2, 3):
        wait_until_counted(muster, (version - 1) * UNTIL // 4)
        fence = sensor_of(muster).fence
        install_version(version)
        muster.wait_for(partial(is_beyond, muster, fence), "it is not restarted")
    wait_until_counted(muster, UNTIL)
    counting.check(muster, UNTIL)
    assert muster.client.call("versions_of", type=counting.TYPE) == [1, 2, 3]
    assert sensor_of(muster).restarts == 0, "it never failed"


@pytest.mark.slow
def test_killed_service_leaves_no_sensor_behind_and_another_takes_over(
    install: Callable[..., Any], measured: Callable[[str, float], None]
) -> None:
    muster: Installation = install(sensor_lease_seconds=LEASE_SECONDS)
    counting.install(muster, until=UNTIL, pause_seconds=0.1)
    services = {name: muster.start_sensor(name) for name in ("s1", "s2")}
    wait_until_counted(muster, 100)
    first = sensor_of(muster)
    services[first.service].kill()
    killed_at = time.monotonic()
    muster.wait_for(
        lambda: not counting.programs(muster, fence=first.fence), "it lives", within_seconds=5
    )
    muster.wait_for(
        lambda: sensor_of(muster).service not in (None, first.service), "nobody takes it"
    )
    measured("kill -9 of a sensor service to another's lease", time.monotonic() - killed_at)
    wait_until_counted(muster, UNTIL)
    counting.check(muster, UNTIL)


@pytest.mark.slow
@servers_only  # a file that a frozen process has locked holds everybody up
def test_lines_of_a_service_that_was_frozen_are_refused_and_its_sensor_ends(
    install: Callable[..., Any], measured: Callable[[str, float], None]
) -> None:
    muster: Installation = install(sensor_lease_seconds=LEASE_SECONDS)
    counting.install(muster, until=UNTIL, pause_seconds=0.2)
    services = {name: muster.start_sensor(name) for name in ("s1", "s2")}
    wait_until_counted(muster, 100)
    first = sensor_of(muster)
    frozen: Service = services[first.service]
    frozen.pause_tree()  # its sentinel, too: the sensor is there when it awakes
    muster.wait_for(
        lambda: sensor_of(muster).service not in (None, first.service), "nobody takes it"
    )
    second = sensor_of(muster)
    assert second.fence > first.fence
    reached = counting.counted(muster)
    wait_until_counted(muster, reached + 200)
    assert counting.programs(muster, fence=first.fence)

    frozen.resume_tree()
    awake_at = time.monotonic()
    muster.wait_for(
        lambda: not counting.programs(muster, fence=first.fence), "it lives", within_seconds=5
    )
    measured("SIGCONT of a service to the end of its sensor", time.monotonic() - awake_at)
    assert sensor_of(muster).fence == second.fence, "the other one goes on"
    wait_until_counted(muster, UNTIL)
    counting.check(muster, UNTIL)


@servers_only
@pytest.mark.slow
def test_frozen_service_alone_loses_its_sensor_to_the_sentinel(
    install: Callable[..., Any],
) -> None:
    muster: Installation = install(sensor_lease_seconds=LEASE_SECONDS)
    counting.install(muster, until=UNTIL, pause_seconds=0.2)
    service = muster.start_sensor("s1")
    wait_until_counted(muster, 100)
    fence = sensor_of(muster).fence
    service.pause()
    muster.wait_for(lambda: not counting.programs(muster, fence=fence), "the sensor goes on")
    service.resume_tree()
    wait_until_counted(muster, UNTIL)
    counting.check(muster, UNTIL)


@pytest.mark.slow
@servers_only
def test_million_lines_wait_in_full_pipes_while_the_database_is_away(
    install: Callable[..., Any], measured: Callable[[str, float], None]
) -> None:
    muster: Installation = install(is_forked=False)  # whose memory is its own
    counting.install(muster, until=LINES)
    service = muster.start_sensor("s1")
    wait_until_counted(muster, 500)
    postgres = muster.backend.postgres
    assert postgres is not None
    postgres.stop()
    try:
        most = _most_memory(service, seconds=8.0)
        assert counting.programs(muster), "it waits"
    finally:
        postgres.start()
    began = time.monotonic()
    wait_until_counted(muster, LINES, within_seconds=60 + LINES / 200)
    measured(f"{LINES:,} lines after the database is back", time.monotonic() - began)
    most = max(most, psutil.Process(service.pid).memory_info().rss)
    measured("memory of the service, in MiB", most / 1024 / 1024)
    assert most <= MEMORY_LIMIT
    counting.check(muster, LINES)
    assert sensor_of(muster).restarts == 0, "it was never ended"


def _most_memory(service: Service, *, seconds: float) -> int:
    process, until, most = psutil.Process(service.pid), time.monotonic() + seconds, 0
    while time.monotonic() < until:
        most = max(most, process.memory_info().rss)
        time.sleep(0.2)
    return most


# --- polls ---------------------------------------------------------------------------------------


class _Feed(BaseHTTPRequestHandler):
    items: list[Any] = []
    answers: list[int] = []

    def do_GET(self) -> None:
        body = json.dumps(self.items).encode()
        tag = f'"{len(self.items)}"'
        status = 304 if self.headers.get("If-None-Match") == tag else 200
        self.answers.append(status)
        self.send_response(status)
        self.send_header("ETag", tag)
        self.send_header("Content-Length", str(len(body) if status == 200 else 0))
        self.end_headers()
        if status == 200:
            self.wfile.write(body)

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def feed() -> Iterator[ThreadingHTTPServer]:
    _Feed.items, _Feed.answers = [], []
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Feed)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_poll_reports_each_item_once_and_one_that_may_not_be_reached_fails(
    install: Callable[..., Any], feed: ThreadingHTTPServer
) -> None:
    muster: Installation = install(http_allowed_networks="127.0.0.0/8")
    url = f"http://127.0.0.1:{feed.server_port}/"
    polled = {"url": url, "items": "", "item_key": "{{ item.id }}", "every_seconds": 1}
    _Feed.items = [{"id": 1}]
    metadata = {"url": "http://169.254.169.254/", "every_seconds": 1}
    news = [
        {
            "ref": f"scenario.poll{number}",
            "trigger_type": "core.http_poll",
            "trigger_parameters": parameters,
            "action_ref": "core.noop",
        }
        for number, parameters in enumerate((polled | {"existing": "report"}, metadata))
    ]
    muster.client.call("install_rules", news=news)
    muster.start_sensor("s1")

    def found() -> int:
        return int(muster.client.call("count_of_events", type="core.http_poll"))

    muster.wait_for(lambda: found() == 1, "the first item is no event")
    muster.wait_for(lambda: 304 in _Feed.answers, "it never asks whether anything has changed")
    _Feed.items = [{"id": 1}, {"id": 2}]
    muster.wait_for(lambda: found() == 2, "the second item is no event")
    problems = [each.problem for each in muster.client.call("sensors").values()]
    assert any("169.254.169.254 is no public address" in problem for problem in problems)
