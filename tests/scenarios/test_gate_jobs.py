"""Jobs of task messages: a service that they name says whether it still wants their tasks."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.scenarios import doors, foreign
from tests.scenarios.doors import Door, Doors
from tests.scenarios.installation import Backend

STATUSES = {
    "active": (200, '"Active"'),
    "waiting": (200, '"Waiting"'),
    "cancelled": (200, '"Cancelled"'),
    "completed": (200, '"Completed"'),
    "failed": (200, '"Failed"'),
    "missing": (404, ""),
    "broken": (500, '"Cancelled"'),
}
RUN = {"active", "waiting", "broken"}
HANG_SECONDS = 30.0


class JobService:
    """A job service on this host. The paths are the jobs; what it says of one may change."""

    def __init__(self) -> None:
        self.statuses = dict(STATUSES)
        self.asked: list[str] = []
        self.over = threading.Event()
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                service.answer(self)

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        job = request.path.removeprefix("/")
        self.asked.append(job)
        if job.startswith("hangs"):
            self.over.wait(HANG_SECONDS)
            return
        status, text = (302, "") if job == "moved" else self.statuses[job]
        request.send_response(status)
        request.send_header("Cache-Control", "max-age=1")
        if status == 302:
            request.send_header("Location", "/cancelled")
        request.end_headers()
        request.wfile.write(text.encode())

    def job(self, name: str, **more: Any) -> dict[str, Any]:
        """The tracking member of a message."""
        url = f"http://127.0.0.1:{self.server.server_port}/{name}"
        return {"jobTaskId": name, "statusCheckUrl": url, **more}

    def close(self) -> None:
        self.over.set()
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def jobs() -> Iterator[JobService]:
    service = JobService()
    yield service
    service.close()


@pytest.fixture(scope="module")
def opened(embedded_backend: Backend) -> Iterator[Doors]:
    allowed = {"MUSTER_HTTP_ALLOWED_NETWORKS": "127.0.0.1/32"}
    with doors.installed(embedded_backend, "embedded", **allowed) as opened:
        yield opened


@pytest.fixture
def door(opened: Doors) -> Iterator[Door]:
    door = opened.make()
    yield door
    door.close()


def statuses(door: Door) -> list[str]:
    """Of the executions of this door's messages."""
    ids = [row.execution_id for row in door.tickets() if row.gate_id == door.id]
    rows = door.installation.client.call("execution_rows", ids=[id for id in ids if id])
    return [row.status for row in rows]


def test_tasks_run_unless_their_job_is_over(door: Door, jobs: JobService) -> None:
    door.make()
    for job in STATUSES:
        door.send(job, {"text": job}, tracking=jobs.job(job))

    answers = door.client.collect(door.output, len(RUN))
    foreign.wait_until(
        lambda: statuses(door).count("cancelled") == len(STATUSES) - len(RUN), "not cancelled"
    )

    assert {answer.told for answer in answers} == {(job, "RESULT_SUCCESS") for job in RUN}
    foreign.wait_until(lambda: door.unacknowledged() == 0, "still unacknowledged")
    assert door.client.depth(door.output) == 0, "nobody waits for the tasks of a job that is over"


def test_service_that_redirects_hangs_or_may_not_be_asked_stops_no_task(
    door: Door, jobs: JobService
) -> None:
    door.make(queue={"prefetch_buffer": 50})
    elsewhere = {"jobTaskId": "J1", "statusCheckUrl": "http://169.254.169.254/J1"}
    door.send("forbidden", {"text": "x"}, tracking=elsewhere)
    door.send("moved", {"text": "x"}, tracking=jobs.job("moved"))
    for n in range(3):
        door.send(f"hangs{n}", {"text": "x"}, tracking=jobs.job(f"hangs{n}"))
    others = [f"other{n}" for n in range(20)]
    for other in others:
        door.send(other, {"text": "x"})

    answers = [door.client.wait(door.output).told for _ in range(len(others) + 5)]

    expected = {*others, "forbidden", "moved", "hangs0", "hangs1", "hangs2"}
    assert set(answers) == {(name, "RESULT_SUCCESS") for name in expected}
    assert "cancelled" not in jobs.asked, "the redirect was followed"


def test_task_of_a_paused_job_waits_until_it_goes_on(door: Door, jobs: JobService) -> None:
    door.make()
    jobs.statuses["J1"] = (200, '"Paused"')
    door.send("t1", {"text": "x"}, tracking=jobs.job("J1", statusCheckIntervalMillis=1_000))
    foreign.wait_until(lambda: jobs.asked.count("J1") >= 2, "not asked again")
    assert statuses(door) in (["requested"], ["scheduling"])
    assert door.client.depth(door.output) == 0

    jobs.statuses["J1"] = (200, '"Active"')

    assert door.client.wait(door.output).told == ("t1", "RESULT_SUCCESS")


def test_task_of_a_paused_job_waits_in_the_paused_queue_of_its_gate(
    door: Door, jobs: JobService
) -> None:
    paused = f"{door.name}.paused"
    door.make(paused_queue=paused)
    jobs.statuses["J1"] = (200, '"Paused"')
    door.send("t1", {"text": "x"}, tracking=jobs.job("J1"))

    moved = door.client.wait(paused)

    assert moved.task["taskId"] == "t1"
    foreign.wait_until(lambda: door.unacknowledged() == 0, "still unacknowledged")
    assert door.client.depth(door.output) == 0
    jobs.statuses["J1"] = (200, '"Active"')
    time.sleep(1.5)  # for as long the earlier answer is good
    door.client.publish(door.input, moved.body, moved.headers)
    assert door.client.wait(door.output).told == ("t1", "RESULT_SUCCESS")
