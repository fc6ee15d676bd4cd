"""A new process of a worker's name: it replaces what is gone, not what runs on this machine."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from orchestrator.core import clock, fleet, topology
from orchestrator.core.models import Worker
from tests import commands
from tests.factories import make_worker
from tests.logged import logged
from tests.rows import reread

pytestmark = pytest.mark.django_db

HOST = socket.gethostname()
WAITS = "import sys; sys.stdin.read()"

_, _, refused = commands.of("worker")


class Processes:
    """Processes that wait for the end of the test, with command lines of one's choice."""

    def __init__(self) -> None:
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", WAITS, *arguments]
        self.started.append(subprocess.Popen(command, stdin=subprocess.PIPE))
        return self.started[-1]


@pytest.fixture
def processes() -> Iterator[Processes]:
    made = Processes()
    yield made
    for process in made.started:
        process.kill()
        process.communicate()


def living(pid: int, *, name: str = "w1", host: str = HOST, **values: Any) -> Worker:
    """A worker whose life began and beat just now, in this process."""
    return make_worker(name, now=clock.now(), host=host, pid=pid, **values)


def register(worker: Worker, *, now: datetime | None = None, **values: Any) -> Worker:
    life: dict[str, Any] = {
        "capacity": 1,
        "runtimes": [],
        "host": HOST,
        "pid": os.getpid(),
        "version": "1",
    }
    return fleet.register(worker_id=worker.pk, now=now or clock.now(), **life | values)


@pytest.mark.parametrize(
    "command",
    [
        ("manage.py", "worker", "--name", "w1"),
        ("manage.py", "worker", "--name=w1", "--queues", "bills"),
        ("-A", "settings", "worker", "-Q", "{queue}"),
        ("[celeryd: w1@host:MainProcess]",),
    ],
)
def test_worker_that_runs_on_this_machine_is_not_replaced(
    processes: Processes, command: tuple[str, ...]
) -> None:
    worker = living(0)
    queue = topology.worker_queue(worker.pk).name
    pid = processes.start(*(part.format(queue=queue) for part in command)).pid
    Worker.objects.update(pid=pid, registered_at=clock.now())
    with pytest.raises(fleet.WorkerRuns) as error:
        register(worker)
    assert str(error.value).startswith(f"Worker w1 runs already: host {HOST}, pid {pid}, heartbeat")
    assert "--replace" in str(error.value)
    assert reread(worker).incarnation == 1
    assert register(worker, replaces=True).incarnation == 2


def test_command_refuses_before_it_gives_the_worker_other_queues(processes: Processes) -> None:
    pid = processes.start("worker", "--name", "w1").pid
    worker = living(pid)
    Worker.objects.update(registered_at=clock.now())
    assert f"pid {pid}" in refused("--name", "w1", "--queues", "default=1", "--label", "zone=b")
    assert (reread(worker).queues, reread(worker).labels) == ({}, {})


def test_worker_whose_process_is_gone_is_replaced_at_once(processes: Processes) -> None:
    process = processes.start("worker", "--name", "w1")
    worker = living(process.pid)
    Worker.objects.update(registered_at=clock.now())
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # gone, and its parent has not looked
    assert register(worker).incarnation == 2
    process.wait()
    worker = register(worker, pid=process.pid)
    assert register(worker).incarnation == 4


def test_process_that_has_the_number_of_an_earlier_life_is_not_that_life(
    processes: Processes,
) -> None:
    began_at = clock.now() - timedelta(seconds=5)
    worker = living(processes.start("worker", "--name", "w1").pid, name="w1")
    Worker.objects.update(registered_at=began_at)
    assert register(worker).incarnation == 2, "it began after that life did"
    other = living(processes.start("worker", "--name", "w2-12").pid, name="w2")
    Worker.objects.update(registered_at=clock.now())
    assert register(other).incarnation == 2, "it is another worker"
    mine = living(os.getpid(), name="w3")
    assert register(mine).incarnation == 2, "as in a container, where each life has the number 1"


def test_silent_worker_is_replaced_though_its_process_lives(processes: Processes) -> None:
    worker = living(processes.start("worker", "--name", "w1").pid)
    Worker.objects.update(registered_at=clock.now())
    assert register(worker, now=clock.now() + timedelta(hours=1)).incarnation == 2


def test_worker_of_another_host_is_replaced_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    worker = living(4711, host="elsewhere")
    assert register(worker).incarnation == 2
    [line] = logged(caplog, "worker replaced that another host runs; names must be unique")
    assert (line["host"], line["pid"], line["level"]) == ("elsewhere", 4711, "warning")
    assert line["heartbeat_age_seconds"] >= 0
