"""What is started as a fork behaves as a program does."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests import forked
from tests.scenarios.installation import environment_of


@pytest.fixture(scope="module")
def forks() -> Iterator[forked.Forks]:
    made = forked.Forks()
    yield made
    made.close()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


def started(forks: forked.Forks, log: Path, *arguments: str, **settings: str) -> forked.Process:
    with log.open("ab") as output:
        return forks.start(
            arguments,
            environment=environment_of(log.parent, {}, settings),
            output=output.fileno(),
        )


def test_each_reads_its_own_settings(forks: forked.Forks, log: Path) -> None:
    for namespace in ("first", "second"):
        command = ("manage.py", "topology", "show")
        assert started(forks, log, *command, namespace=namespace).wait() == 0

    text = log.read_text()
    assert "first.execution.requests.queue" in text
    assert "second.execution.requests.queue" in text


def test_exit_status_is_that_of_the_program(forks: forked.Forks, log: Path) -> None:
    assert started(forks, log, "manage.py", "nothing of this name").wait() == 1
    assert "Unknown command" in log.read_text()


def test_wrong_setting_is_one_line(forks: forked.Forks, log: Path) -> None:
    process = started(forks, log, "manage.py", "workers", "list", heartbeat_interval_seconds="x")
    assert process.wait() == 1
    [line] = log.read_text().splitlines()
    assert line.startswith("Wrong setting: MUSTER_HEARTBEAT_INTERVAL_SECONDS")


def test_it_is_signalled_and_waited_for_as_a_child_is(forks: forked.Forks, log: Path) -> None:
    process = started(forks, log, "-m", "http.server", "--bind", "127.0.0.1", "0")
    assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.05)
    seen = psutil.Process(process.pid)
    assert seen.cmdline()[1:4] == ["-m", "http.server", "--bind"]

    process.kill()

    assert process.wait() == -signal.SIGKILL
    assert process.poll() == process.returncode == -signal.SIGKILL
    process.kill()  # has no effect, and ends nobody else
    assert not seen.is_running()
