"""Services as child processes: restarted when they die, ended together, outliving nobody."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import psutil
import pytest
from django.core.management import CommandError

from orchestrator.drills import guardian
from orchestrator.drills.management.commands.up import refuse_taken_port
from orchestrator.drills.supervisor import (
    AnotherRuns,
    Child,
    Death,
    NeverStarts,
    Service,
    Supervisor,
    alone,
    last_line,
    last_lines,
)
from tests.servers import is_alive
from tests.waiting import wait_until

SLEEPS = "import time; print('ready', flush=True); time.sleep(60)"
IGNORES_SIGTERM = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {SLEEPS}"
GRANDCHILDREN = (
    "import subprocess, sys; "
    "again = [sys.executable, '-c', 'import time; time.sleep(60)']; "
    "subprocess.Popen(again); subprocess.Popen(again, start_new_session=True); "
    # without the mark, in the session of this process
    "subprocess.Popen(again, env={}); " + SLEEPS
)


def python(name: str, code: str, *, restarts: bool = True) -> Service:
    return Service(name=name, command=[sys.executable, "-c", code], restarts=restarts)


def wait_for_deaths(supervisor: Supervisor) -> list[Death]:
    deaths: list[Death] = []

    def someone_died() -> bool:
        deaths.extend(supervisor.look())
        return bool(deaths)

    wait_until(someone_died)
    return deaths


def is_ready(child: Child) -> bool:
    return child.log_path.exists() and "ready" in child.log_path.read_text()


@pytest.fixture
def supervise(tmp_path: Path) -> Iterator[Callable[..., Supervisor]]:
    started: list[Supervisor] = []

    def start(*services: Service, environment: Mapping[str, str] = os.environ) -> Supervisor:
        supervisor = Supervisor(
            services, log_dir=tmp_path / "logs", work_dir=tmp_path, environment=environment
        )
        started.append(supervisor)
        supervisor.start()
        return supervisor

    yield start
    for supervisor in started:
        supervisor.stop(grace_seconds=0)


def test_child_that_dies_is_started_again(supervise):
    supervisor = supervise(python("service", SLEEPS))
    child = supervisor.children["service"]
    wait_until(lambda: is_ready(child))
    first_pid = child.pid
    os.kill(first_pid, signal.SIGKILL)
    deaths = wait_for_deaths(supervisor)
    assert deaths[0].cause == "killed by SIGKILL"
    assert deaths[0].last_words == "ready"
    wait_until(lambda: supervisor.look() == [] and child.pid)
    assert child.pid != first_pid
    assert child.restarts == 1


def test_service_that_is_added_is_kept_running_like_the_others(supervise):
    supervisor = supervise(python("first", SLEEPS))
    supervisor.add(python("second", SLEEPS))
    child = supervisor.children["second"]
    wait_until(lambda: is_ready(child))
    first_pid = child.pid
    os.kill(first_pid, signal.SIGKILL)
    assert [death.name for death in wait_for_deaths(supervisor)] == ["second"]
    wait_until(lambda: supervisor.look() == [] and child.pid)
    assert child.pid != first_pid


def test_child_that_keeps_dying_is_started_less_and_less_often(tmp_path):
    child = Child(python("service", "pass"), tmp_path / "log", started_at=time.monotonic())
    waits = [child.note_death(1).again_in_seconds for _ in range(7)]
    assert waits == [1, 2, 4, 8, 16, 30, 30]


def test_service_that_dies_three_times_at_its_start_is_given_up_with_its_last_lines(supervise):
    code = "import sys; print('no /dev/shm'); sys.exit('[Errno 13] Permission denied')"
    supervisor = supervise(python("w1", code), python("other", SLEEPS))
    w1 = supervisor.children["w1"]
    for _ in range(2):
        (death,) = wait_for_deaths(supervisor)
        assert death.exit_status == 1
        w1.start_at = 0.0  # no back-off
    with pytest.raises(NeverStarts) as given_up:
        wait_for_deaths(supervisor)
    first, *rest = str(given_up.value).splitlines()
    assert first == f"w1 died 3 times at its start (exit 1). {w1.log_path} ends with:"
    assert rest[-2:] == ["  no /dev/shm", "  [Errno 13] Permission denied"]


@pytest.mark.parametrize("exit_status", [-signal.SIGKILL, -signal.SIGTERM, 70])
def test_service_that_others_end_is_not_given_up(tmp_path, exit_status):
    child = Child(python("w1", "pass"), tmp_path / "log", started_at=time.monotonic())
    for _ in range(5):
        child.note_death(exit_status)
    assert not child.never_starts


def test_service_that_has_lived_is_not_given_up(tmp_path):
    child = Child(python("api", "pass"), tmp_path / "log", started_at=time.monotonic() - 60)
    child.note_death(1)
    child.started_at = time.monotonic()
    for _ in range(5):
        child.note_death(1)
    assert not child.never_starts


def test_worker_that_was_declared_lost_is_started_again_at_once(tmp_path):
    child = Child(python("w1", "pass"), tmp_path / "log", started_at=time.monotonic())
    death = child.note_death(70)
    assert death.again_in_seconds == 0
    assert "declared lost" in death.cause


def test_child_that_lived_long_is_started_again_at_once(tmp_path):
    child = Child(python("service", "pass"), tmp_path / "log", short_lives=5)
    child.started_at = time.monotonic() - 3_600
    assert child.note_death(1).again_in_seconds == 0


def test_child_that_shall_not_be_restarted_stays_down(supervise):
    supervisor = supervise(python("service", "raise SystemExit(3)", restarts=False))
    deaths = wait_for_deaths(supervisor)
    assert (deaths[0].exit_status, deaths[0].again_in_seconds) == (3, None)
    supervisor.look()
    assert supervisor.children["service"].pid is None


def test_stop_asks_first_and_kills_only_who_does_not_listen(supervise):
    supervisor = supervise(python("polite", SLEEPS), python("deaf", IGNORES_SIGTERM))
    wait_until(lambda: all(map(is_ready, supervisor.children.values())))
    assert supervisor.stop(grace_seconds=3) == ["deaf"]
    exits = {name: child.process.returncode for name, child in supervisor.children.items()}
    assert exits == {"polite": -signal.SIGTERM, "deaf": -signal.SIGKILL}


def test_stop_does_not_wait_when_it_becomes_urgent(supervise):
    supervisor = supervise(python("deaf", IGNORES_SIGTERM))
    wait_until(lambda: is_ready(supervisor.children["deaf"]))
    began_at = time.monotonic()
    assert supervisor.stop(grace_seconds=60, is_urgent=lambda: True) == ["deaf"]
    assert time.monotonic() - began_at < 30


def test_stopped_process_takes_its_sigterm(supervise):
    supervisor = supervise(python("service", SLEEPS))
    wait_until(lambda: is_ready(supervisor.children["service"]))
    supervisor.signal_tree("service", signal.SIGSTOP)
    assert supervisor.stop(grace_seconds=5) == []


def test_stop_leaves_no_grandchild_behind(supervise):
    supervisor = supervise(python("service", GRANDCHILDREN))
    wait_until(lambda: is_ready(supervisor.children["service"]))
    processes = list(guardian.marked(supervisor.mark))
    assert len(processes) == 4
    supervisor.stop(grace_seconds=5)
    assert not any(map(is_alive, processes))


def test_nothing_outlives_supervisor_that_is_killed(tmp_path):
    script = f"""
import os, sys, time
from pathlib import Path
from orchestrator.drills.supervisor import Service, Supervisor
supervisor = Supervisor(
    [Service(name="service", command=[sys.executable, "-c", {GRANDCHILDREN!r}])],
    log_dir=Path({str(tmp_path)!r}), work_dir=Path("/"), environment=os.environ,
)
supervisor.start()
print(supervisor.mark, flush=True)
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as supervisor:
        assert supervisor.stdout is not None
        mark = supervisor.stdout.readline().decode().strip()
        wait_until(lambda: "ready" in (tmp_path / "service.log").read_text())
        processes = list(guardian.marked(mark))
        assert len(processes) >= 4
        supervisor.kill()
    wait_until(lambda: not list(guardian.marked(mark)))
    wait_until(lambda: not any(is_alive(process) for process in processes))


@pytest.mark.parametrize("is_replaced", [False, True])
def test_service_whose_mark_nobody_can_read_is_killed_with_its_supervisor(tmp_path, is_replaced):
    """As services let nobody read their environment. This one has none."""
    script = f"""
import os, sys, time
from pathlib import Path
from orchestrator.drills.supervisor import Service, Supervisor
supervisor = Supervisor(
    [Service(name="service", command=["env", "-i", "sh", "-c", "sleep 600 & sleep 600"])],
    log_dir=Path({str(tmp_path)!r}), work_dir=Path("/"), environment=os.environ,
)
supervisor.start()
if {is_replaced}:
    supervisor._guardian.kill()
    supervisor._guardian.wait()
    supervisor.look()
print(supervisor.children["service"].pid, supervisor.mark, flush=True)
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as supervisor:
        assert supervisor.stdout is not None
        pid, mark = supervisor.stdout.readline().decode().split()
        wait_until(lambda: len(psutil.Process(int(pid)).children()) == 2)
        processes = [psutil.Process(int(pid)), *psutil.Process(int(pid)).children()]
        assert not {process.pid for process in guardian.marked(mark)} & {int(pid)}
        supervisor.kill()
    wait_until(lambda: not any(map(is_alive, processes)))


def test_guardian_that_was_killed_is_replaced(supervise):
    supervisor = supervise(python("service", SLEEPS))
    first = supervisor._guardian
    first.kill()
    first.wait()
    supervisor.look()
    assert supervisor._guardian is not first
    assert supervisor._guardian.poll() is None


def test_two_supervisors_never_share_a_data_directory(tmp_path):
    with alone(tmp_path), pytest.raises(AnotherRuns, match=str(tmp_path)), alone(tmp_path):
        pass
    with alone(tmp_path):
        pass


def test_port_in_use_is_refused_by_its_number():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(CommandError, match=f"Port {port}.*--port"):
            refuse_taken_port(port)
    refuse_taken_port(port)


def test_last_line_is_the_last_that_says_something(tmp_path):
    path = tmp_path / "log"
    path.write_text("first\nlast\n\n  \n")
    assert last_line(path) == "last"
    assert last_lines(path, 5) == ["first", "last"]
    assert last_line(tmp_path / "missing") == ""
