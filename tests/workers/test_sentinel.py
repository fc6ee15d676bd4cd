"""The sentinel ends what a worker can no longer end."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator

import psutil
import pytest

from tests.servers import is_alive
from tests.waiting import wait_until
from workers import processes, sentinel

WORKER = """
import os, subprocess, sys, time
sentinel = subprocess.Popen(
    [sys.executable, "-m", "workers.sentinel", str(os.getpid()), *sys.argv[1:]],
    stdin=subprocess.PIPE,
)
child = subprocess.Popen(["sleep", "60"])
print(sentinel.pid, child.pid, flush=True)
for line in sys.stdin:
    sentinel.stdin.write(line.strip().encode())
    sentinel.stdin.flush()
time.sleep(60)
"""


class Watched:
    """A stand-in for a worker: a sentinel, a child, and a daemon of an action."""

    def __init__(self, limit_seconds: float) -> None:
        token = f"test.{uuid.uuid4()}"
        self.process = subprocess.Popen(
            [sys.executable, "-c", WORKER, str(limit_seconds), token],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        sentinel, child = map(int, self.process.stdout.readline().split())
        marks = processes.markers(str(uuid.uuid4()), 1, "test.action")
        self.daemon = subprocess.Popen(
            ["sleep", "60"],
            env=marks | {processes.WORKER_TOKEN: token, "PATH": "/usr/bin:/bin"},
            start_new_session=True,
        )
        self.sentinel, self.child = psutil.Process(sentinel), psutil.Process(child)

    def write(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{text}\n")
        self.process.stdin.flush()

    def close(self) -> None:
        for process in (self.process, self.daemon, self.child, self.sentinel):
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        self.process.communicate()
        self.daemon.wait()


@pytest.fixture
def watched(request: pytest.FixtureRequest) -> Iterator[Watched]:
    watched = Watched(request.param)
    yield watched
    watched.close()


def limit(seconds: float) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("watched", [seconds], indirect=True)


@limit(3)
def test_worker_that_is_silent_is_killed_with_all_that_it_runs(watched: Watched) -> None:
    psutil.Process(watched.process.pid).suspend()
    began = time.monotonic()

    assert watched.process.wait(60) == -9
    assert time.monotonic() - began > 0.5
    wait_until(lambda: not is_alive(watched.child) and watched.daemon.poll() is not None)
    wait_until(lambda: not is_alive(watched.sentinel))


@limit(3)
def test_worker_that_renews_is_left_alone(watched: Watched) -> None:
    for _ in range(20):
        watched.write("+")
        time.sleep(0.2)
    assert watched.process.poll() is None
    assert watched.daemon.poll() is None


@limit(60)
def test_what_a_killed_worker_left_ends_at_once(watched: Watched) -> None:
    watched.write("+")
    watched.process.kill()
    began = time.monotonic()

    assert watched.daemon.wait(60) == -9
    assert time.monotonic() - began < 30, "not only when its time was up"


@limit(60)
def test_worker_that_says_goodbye_leaves_no_sentinel(watched: Watched) -> None:
    watched.write(".")
    wait_until(lambda: not is_alive(watched.sentinel))
    assert watched.daemon.poll() is None
    assert watched.process.poll() is None


@pytest.mark.parametrize("log_format", ["", sentinel.AS_JSON])
def test_its_line_is_as_those_of_the_service(
    capsys: pytest.CaptureFixture[str], log_format: str
) -> None:
    sentinel.tell("killed", level="error", log_format=log_format, pid=7)
    (line,) = capsys.readouterr().err.splitlines()
    if log_format:
        told = json.loads(line)
        assert told.pop("timestamp").endswith("Z")
        assert told == {"event": "killed", "level": "error", "logger": "workers.sentinel", "pid": 7}
    else:
        assert line.endswith("Z [error] killed [workers.sentinel] pid=7")
