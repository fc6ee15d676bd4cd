"""The processes of an action are found wherever they went, and end."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.waiting import wait_until
from tests.workers.helpers import call
from workers import processes, runtimes
from workers.runtimes import Outcome

DAEMON = """
import os, sys, time
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
open(sys.argv[1], "w").write(f"{os.getpid()}\\n")
time.sleep(60)
"""
DEAF = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open(sys.argv[1], "w").write(f"{os.getpid()}\\n")
time.sleep(60)
"""


@pytest.fixture
def execution_id() -> Iterator[str]:
    execution_id = str(uuid.uuid4())
    yield execution_id
    processes.terminate(execution_id, grace_seconds=0)


def start(execution_id: str, *argv: str, attempt: int = 1, token: str = "") -> subprocess.Popen:
    marks = processes.markers(execution_id, attempt, "test.action")
    if token:
        marks[processes.WORKER_TOKEN] = token
    return subprocess.Popen(argv, env=os.environ | marks, start_new_session=True)


def pid_in(path: Path) -> int:
    wait_until(lambda: path.exists() and path.read_text().endswith("\n"))
    return int(path.read_text())


def test_processes_are_found_by_execution_and_attempt(execution_id):
    with (
        start(execution_id, "sleep", "60") as first,
        start(execution_id, "sleep", "60", attempt=2) as second,
    ):
        wait_until(lambda: len(processes.find(execution_id)) == 2)
        assert {p.pid for p in processes.find(execution_id)} == {first.pid, second.pid}
        assert {p.pid for p in processes.find(execution_id, 2)} == {second.pid}
        assert processes.find(str(uuid.uuid4())) == []
        assert processes.terminate(execution_id, 2, grace_seconds=5) == 1
        assert [p.pid for p in processes.find(execution_id)] == [first.pid]
        assert processes.terminate(execution_id, grace_seconds=5) == 1
        assert first.wait(timeout=60) == -15


def test_a_daemon_that_forked_twice_is_found_and_ended(execution_id, tmp_path):
    with start(execution_id, sys.executable, "-c", DAEMON, str(tmp_path / "pid")) as starter:
        starter.wait(timeout=60)
        pid = pid_in(tmp_path / "pid")
        assert [p.pid for p in processes.find(execution_id, 1)] == [pid]
        assert processes.terminate(execution_id, 1, grace_seconds=5) == 1
        assert processes.find(execution_id) == []


def test_who_ignores_sigterm_is_killed_after_the_grace(execution_id, tmp_path):
    with start(execution_id, sys.executable, "-c", DEAF, str(tmp_path / "pid")) as deaf:
        pid_in(tmp_path / "pid")
        started = time.monotonic()
        assert processes.terminate(execution_id, 1, grace_seconds=0.2) == 1
        assert 0.2 <= time.monotonic() - started < 30
        assert deaf.wait(timeout=60) == -9


def test_who_cleared_the_environment_is_found_through_the_leader_of_its_session(execution_id):
    with start(execution_id, "sh", "-c", "env -i sleep 60 & wait") as leader:
        wait_until(lambda: len(psutil.Process(leader.pid).children()) == 1)
        assert len(processes.find(execution_id)) == 2
        assert processes.terminate(execution_id, grace_seconds=5) == 2
        leader.wait(timeout=60)


def test_a_command_that_cleared_its_environment_is_found_in_its_working_directory():
    asked = call("shell", ["env", "-i", "/bin/sleep", "60"])
    outcomes: list[Outcome] = []
    thread = threading.Thread(target=lambda: outcomes.append(runtimes.run(asked)))
    thread.start()

    def names() -> list[str]:
        return [process.name() for process in processes.find(asked.execution_id, 1)]

    wait_until(lambda: "sleep" in names())
    assert processes.terminate(asked.execution_id, 1, grace_seconds=5) == 2  # with its keeper
    thread.join(timeout=10)
    assert outcomes[0].result["signal"] == "SIGTERM"


def test_a_process_that_is_over_is_not_waited_for(execution_id):
    with start(execution_id, "sleep", "60") as process:
        wait_until(lambda: processes.find(execution_id))
        started = time.monotonic()
        # nobody has looked at its end yet: it stays as a zombie until then
        assert processes.terminate(execution_id, grace_seconds=30) == 1
        assert time.monotonic() - started < 10
        assert processes.terminate(execution_id, grace_seconds=30) == 0
        process.wait(timeout=60)


def test_everything_of_one_life_of_a_worker_is_killed_and_nothing_of_the_next(execution_id):
    token = str(uuid.uuid4())
    with (
        start(execution_id, "sleep", "60", token=token) as ours,
        start(execution_id, "sleep", "60", token=f"{token}.next") as theirs,
    ):
        wait_until(lambda: len(processes.find(execution_id)) == 2)
        assert processes.kill_all(token) == 1
        assert ours.wait(timeout=60) == -9
        assert theirs.poll() is None
        processes.terminate(execution_id, grace_seconds=0)


def test_the_workers_own_children_are_not_its_actions():
    token = str(uuid.uuid4())
    environment = os.environ | {processes.WORKER_TOKEN: token}
    with subprocess.Popen(["sleep", "60"], env=environment) as pool_child:
        assert processes.kill_all(token) == 0
        pool_child.kill()


def test_markers_carry_the_token_of_the_worker_if_there_is_one(monkeypatch):
    monkeypatch.delenv(processes.WORKER_TOKEN, raising=False)
    assert processes.markers("e", 2, "core.echo") == {
        "MSTR_EXECUTION_ID": "e",
        "MSTR_ATTEMPT": "2",
        "MSTR_ACTION": "core.echo",
    }
    monkeypatch.setenv(processes.WORKER_TOKEN, "w1.7")
    assert processes.markers("e", 2, "core.echo")["MSTR_WORKER_TOKEN"] == "w1.7"
